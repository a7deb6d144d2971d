"""The proxy recognises the one request it holds back, in every version of it."""

import struct

import pytest

from worker.stack.proxy import leads


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("client", [b"aiokafka", None])
def test_the_leaders_sync_is_the_one_with_assignments(version: int, client: bytes | None) -> None:
    assert leads(_sync(version, client, assignments=2))
    assert not leads(_sync(version, client, assignments=0))


def test_other_requests_pass() -> None:
    assert not leads(struct.pack(">hhih", 1, 4, 7, -1) + b"\x00" * 40)
    assert not leads(struct.pack(">hhih", 18, 3, 7, -1))


def _sync(version: int, client: bytes | None, *, assignments: int) -> bytes:
    flexible = version >= 4
    header = struct.pack(">hhi", 14, version, 7)
    header += struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    if flexible:
        header += b"\x00"

    def text(value: bytes | None) -> bytes:
        if flexible:
            return b"\x00" if value is None else bytes([len(value) + 1]) + value
        return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value

    body = text(b"group") + struct.pack(">i", 3) + text(b"member-1")
    if version >= 3:
        body += text(None)
    if version >= 5:
        body += text(b"consumer") + text(b"range")
    body += bytes([assignments + 1]) if flexible else struct.pack(">i", assignments)
    return header + body + b"rest"
