"""A TCP proxy before the mock broker that removes its SyncGroup race, and gives it a port we choose.

The mock declares a group complete as soon as the leader's assignment arrives; a follower that asks
after that is refused for ever. Holding the leader back for a moment lets every follower ask first.
"""

import asyncio
import struct

_SYNC_GROUP = 14
_FIRST_FLEXIBLE = 4
_HOLD_SECONDS = 0.1
_LARGEST = 128 * 1024 * 1024


async def serve(port: int, upstream: int) -> asyncio.Server:
    """Listen on `port` and pass everything on to `upstream`; OSError when the port is taken."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", upstream)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_requests(reader, far_writer), _answers(far_reader, writer))

    return await asyncio.start_server(connected, "127.0.0.1", port)


async def _requests(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while True:
            size = await source.readexactly(4)
            length = int.from_bytes(size, "big")
            if length > _LARGEST:
                return
            frame = await source.readexactly(length)
            if leads(frame):
                await asyncio.sleep(_HOLD_SECONDS)
            target.write(size + frame)
            await target.drain()
    except (asyncio.IncompleteReadError, OSError):
        return
    finally:
        target.close()


async def _answers(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while chunk := await source.read(65536):
            target.write(chunk)
            await target.drain()
    except OSError:
        return
    finally:
        target.close()


def leads(frame: bytes) -> bool:
    """This request is the group leader's SyncGroup: one that carries assignments."""
    kind, version = struct.unpack_from(">hh", frame)
    if kind != _SYNC_GROUP:
        return False
    fields = _Fields(frame, flexible=version >= _FIRST_FLEXIBLE)
    fields.skip(8)
    fields.client_id()
    fields.text()  # group
    fields.skip(4)  # generation
    fields.text()  # member
    if version >= 3:
        fields.text()  # group instance
    if version >= 5:
        fields.text()  # protocol type
        fields.text()  # protocol name
    return fields.count() > 0


class _Fields:
    """A cursor over one request; flexible versions count in varints, one more than the length."""

    def __init__(self, frame: bytes, *, flexible: bool) -> None:
        self._frame, self._at, self._flexible = frame, 0, flexible

    def skip(self, size: int) -> None:
        self._at += size

    def client_id(self) -> None:
        # Always the old form, even in flexible headers, which add an empty list of tags.
        self.skip(max(0, self._number(">h")))
        if self._flexible:
            self._varint()

    def text(self) -> None:
        length = self._varint() - 1 if self._flexible else self._number(">h")
        self.skip(max(0, length))

    def count(self) -> int:
        return self._varint() - 1 if self._flexible else self._number(">i")

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._frame, self._at)
        self.skip(struct.calcsize(form))
        return int(value)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._frame[self._at]
            self.skip(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
