"""Whatever is put into Redis, only what a holder of the ledger's key wrote for this very question is an answer."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filter.world import RESULT, World, asked, row
from worker.filter.sealed import Sealer
from worker.rules.claims import Status
from worker.rules.entries import Row
from worker.rules.results import ContentType, Result

LEDGER, KEY = b"l" * 16, b"k" * 32
SEALER = Sealer(LEDGER, KEY)
KEPT = row(Result(Status.REJECTED, ContentType.JSON, b'{"code": "c"}', "c"), id_=b"i" * 16)
SEALED = SEALER.seal(KEPT)
NOW_MS = (KEPT.expires_at - timedelta(hours=1)).timestamp() * 1000

optional_bytes = st.none() | st.binary(max_size=40)
rows = st.builds(
    lambda status, kind, body, code, fingerprint, fence, left: row(
        Result(status, kind, body, code), fingerprint=fingerprint, fence=fence, left=left
    ),
    st.sampled_from(Status),
    st.sampled_from(ContentType),
    optional_bytes,
    st.none() | st.text(max_size=20),
    optional_bytes,
    st.integers(0, 2**63 - 1),
    st.integers(1, 10**12).map(lambda ms: timedelta(milliseconds=ms)),
)


def opened(sealed: bytes, asked_for: Row = KEPT, sealer: Sealer = SEALER) -> Row | None:
    return sealer.open(sealed, asked_for.id, asked_for.fingerprint, NOW_MS)


@settings(deadline=None)
@given(rows)
def test_every_row_that_fits_is_opened_as_it_was(kept: Row) -> None:
    assert opened(SEALER.seal(kept), kept) == kept


@settings(deadline=None)
@given(rows, rows)
def test_an_entry_answers_no_other_question(one: Row, other: Row) -> None:
    assert SEALER.open(SEALER.seal(one), other.id, one.fingerprint, NOW_MS) is None
    if one.fingerprint != other.fingerprint:
        assert SEALER.open(SEALER.seal(one), one.id, other.fingerprint, NOW_MS) is None


@settings(deadline=None)
@given(rows, st.data())
def test_no_flipped_bits_are_believed(kept: Row, data: st.DataObject) -> None:
    sealed = bytearray(SEALER.seal(kept))
    flips = st.dictionaries(st.integers(0, len(sealed) - 1), st.integers(1, 255), min_size=1, max_size=4)
    for place, flip in data.draw(flips).items():
        sealed[place] ^= flip
    assert opened(bytes(sealed), kept) is None


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_garbage_is_believed(garbage: bytes) -> None:
    assert opened(garbage) is None
    assert opened(SEALED[:28] + garbage) is None or SEALED[28:] == garbage
    assert opened(SEALED + garbage) is None or not garbage


@pytest.mark.parametrize("place", range(len(SEALED)))
def test_no_part_of_an_entry_is_believed(place: int) -> None:
    assert opened(SEALED[:place]) is None
    assert opened(SEALED[place + 1 :]) is None


@pytest.mark.parametrize(
    "other", [Sealer(LEDGER, b"K" * 32), Sealer(b"L" * 16, KEY), Sealer(LEDGER[:15], KEY), Sealer(LEDGER, KEY[:31])]
)
def test_another_ledger_or_key_is_not_believed(other: Sealer) -> None:
    assert opened(SEALED) == KEPT
    assert opened(other.seal(KEPT)) is None
    assert opened(SEALED, sealer=other) is None


@pytest.mark.parametrize("key", [b"", b"short", b"k" * 65])
def test_a_key_that_could_be_guessed_or_is_cut_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="16 to 64 bytes"):
        Sealer(LEDGER, key)


async def test_what_others_write_into_redis_costs_an_answer_but_never_gives_one(world: World) -> None:
    kept, other = row(RESULT), row(Result(Status.OK, ContentType.TEXT, b"another's"))
    stranger = Sealer(world.ledger, secrets.token_bytes(32))
    elsewhere = Sealer(secrets.token_bytes(16), world.key)
    async with world.filter() as filter_, world.redis() as redis:
        await world.remembered(filter_, [kept, other])
        key = world.redis_key(kept.id)
        true = await redis.get(key)
        swapped = await redis.get(world.redis_key(other.id))
        assert isinstance(true, bytes)
        assert isinstance(swapped, bytes)
        flipped = [true[:n] + bytes([true[n] ^ 1]) + true[n + 1 :] for n in range(len(true))]
        cut = [true[:n] for n in range(len(true))]
        forged = [stranger.seal(kept), elsewhere.seal(kept), swapped, b"", b"\x00" * 100, secrets.token_bytes(2**20)]
        for lie in (*forged, *flipped, *cut, true + b"\x00"):
            await redis.set(key, lie)
            assert await filter_.look_up(asked([kept, other])) == {other.id: other}
        await redis.delete(key)
        await redis.rpush(key, true)
        assert await filter_.look_up(asked([kept, other])) == {other.id: other}
        await redis.set(key, true)
        assert await filter_.look_up(asked([kept])) == {kept.id: kept}
    assert world.notices == []


@contextlib.asynccontextmanager
async def impostor(reply: bytes) -> AsyncIterator[str]:
    """Something that is no Redis and gives one reply to whatever it reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                writer.write(reply)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()


@pytest.mark.parametrize(
    "reply",
    [
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*1\r\n:5\r\n",
        b"*1\r\n*1\r\n$1\r\nx\r\n",
        b"*1\r\n-ERR inside\r\n",
        b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n",
        b"$3\r\nabc\r\n",
        b"-ERR unknown command\r\n",
        b"-LOADING still\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"*1\r\n$1\r\n",
        b"\x00\xff\x00",
        b"*1\r\n$1\r\nx\r\n*1\r\n$1\r\nx\r\n",
    ],
)
async def test_an_impostor_costs_time_only(world: World, reply: bytes) -> None:
    async with impostor(reply) as url, world.filter(url=url, timeout=0.1) as filter_:
        for _ in range(4):
            filter_.remember([row()])
            assert await filter_.look_up(asked([row()])) == {}
    assert "filter_write_broke" not in {event for event, _ in world.notices}
