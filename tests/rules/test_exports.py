"""Lines of a file: kcat's envelopes, providers' events, and what is neither."""

import json
from typing import Any

import pytest

from worker.rules.exports import Exported, Malformed, read_line
from worker.rules.paths import Path


def read(line: bytes, time: str | None = None) -> Exported:
    return read_line(line, topic="file:x", number=4, time=None if time is None else Path.of(time))


def envelope(**changes: Any) -> bytes:
    given = {"topic": "t", "partition": 2, "offset": 9, "tstype": "create", "ts": 1700000000000, "payload": '{"id": 1}'}
    return json.dumps({**given, **changes}).encode()


def test_an_envelope_gives_back_the_record() -> None:
    found = read(envelope(key="k", headers=["a", "1", "a", "2", "b", None]))
    record = found.record
    assert (record.topic, record.partition, record.offset) == ("file:x", 0, 4)
    assert (record.key, record.value, found.at) == (b"k", b'{"id": 1}', 1700000000000)
    assert record.headers == (("a", b"1"), ("a", b"2"), ("b", None))


def test_a_null_payload_stays_one() -> None:
    assert read(envelope(payload=None, key=None)).record.value is None


@pytest.mark.parametrize("changes", [{"tstype": "unknown"}, {"ts": -1}, {"ts": None}, {"ts": "soon"}])
def test_a_time_that_is_none_is_none(changes: dict[str, Any]) -> None:
    assert read(envelope(**changes)).at is None


def test_any_other_object_is_the_payload_byte_for_byte() -> None:
    line = b'{"id": "evt_1",  "amount": 10000000000000000000001}'
    assert read(line).record.value == line


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (b"1700000000", 1700000000000),
        (b"1700000000.5", 1700000000500),
        (b"1700000000123", 1700000000123),
        (b'"2023-11-14T22:13:20Z"', 1700000000000),
        (b'"2023-11-14T22:13:20"', None),
        (b"true", None),
        (b"-5", None),
        (b"1e300", None),
        (b"[1]", None),
    ],
)
def test_times_in_payloads(value: bytes, at: int | None) -> None:
    assert read(b'{"event": {"created": ' + value + b"}}", "event.created").at == at


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"5",
        b"\xff\xfe",
        b'{"id": 1} trailing',
        envelope(payload=5),
        envelope(headers=["a"]),
        envelope(headers={"a": "1"}),
        envelope(headers=[1, "a"]),
        envelope(key=1.5),
    ],
)
def test_what_is_no_record_is_told(line: bytes) -> None:
    with pytest.raises(Malformed):
        read(line)
