"""What the filter answers, and all it does not answer."""

import asyncio
import secrets
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.filter.world import NO_RESULT, RESULT, World, asked, row
from tests.security.certificates import Authority
from tests.security.proxy import tls_proxy
from worker.rules.claims import State, Status
from worker.rules.entries import Row
from worker.rules.fingerprint import FORMAT
from worker.rules.results import ContentType, Result, rejected, unstorable


@pytest.mark.parametrize(
    "kept",
    [
        row(RESULT),
        row(NO_RESULT),
        row(Result(Status.OK, ContentType.BYTES, b"")),
        row(Result(Status.OK, ContentType.BYTES, bytes(range(256)) * 60)),
        row(Result(Status.OK, ContentType.TEXT, "Grüße \N{FIRE}".encode())),
        row(rejected("no such account", "account")),
        row(rejected("no code", "")),
        row(Result(Status.REJECTED, ContentType.NONE, None, "caf\N{LATIN SMALL LETTER E WITH ACUTE}")),
        row(unstorable("too large")),
        row(RESULT, fingerprint=None),
        row(RESULT, fence=2**62),
        row(RESULT, left=timedelta(days=3650)),
    ],
    ids=lambda kept: kept.result.status.name.lower(),
)
async def test_a_remembered_row_comes_back_as_it_was(world: World, kept: Row) -> None:
    async with world.filter() as filter_:
        found = await world.remembered(filter_, [kept])
    assert found == {kept.id: kept}
    result = found[kept.id].result
    assert result is not None
    assert (type(result.status), type(result.content_type)) == (Status, ContentType)


async def test_what_led_to_the_completion_is_not_kept_and_the_expiry_is_never_later(world: World) -> None:
    left = timedelta(hours=1, microseconds=999)
    kept = replace(row(left=left), attempts=3, crashes=1, failed_at=row().expires_at)
    async with world.filter() as filter_:
        found = await world.remembered(filter_, [kept])
    expected = replace(kept, attempts=0, crashes=0, failed_at=None, expires_at=row().expires_at)
    assert found == {kept.id: expected}


async def test_a_batch_is_answered_entry_by_entry(world: World) -> None:
    known = [row(Result(Status.OK, ContentType.TEXT, b"%d" % n), fence=n) for n in range(500)]
    unknown = [row() for _ in range(500)]
    mixed = [one for pair in zip(known, unknown, strict=True) for one in pair]
    async with world.filter() as filter_:
        await world.remembered(filter_, known)
        assert await filter_.look_up(asked(mixed)) == {one.id: one for one in known}
        assert await filter_.look_up({}) == {}


@pytest.mark.parametrize("stored", [b"f" * 32, None])
async def test_another_fingerprint_is_no_answer(world: World, stored: bytes | None) -> None:
    kept = row(fingerprint=stored)
    async with world.filter() as filter_:
        await world.remembered(filter_, [kept])
        for wanted in {b"g" * 32, b"f" * 32, b"f" * 31, b"f" * 33, b"", None} - {stored}:
            assert await filter_.look_up({kept.id: wanted}) == {}


async def test_an_entry_is_answered_until_it_expires_and_not_after(world: World) -> None:
    kept = row(left=timedelta(seconds=60))
    async with world.filter() as filter_:
        await world.remembered(filter_, [kept])
        world.now += 59.999
        assert await filter_.look_up(asked([kept])) == {kept.id: kept}
        world.now += 0.001
        assert await filter_.look_up(asked([kept])) == {}
        async with world.redis() as redis:
            assert await redis.exists(world.redis_key(kept.id)) == 1


async def test_nothing_is_answered_on_a_lapsed_lease(world: World) -> None:
    kept = row()
    async with world.filter() as filter_:
        await world.remembered(filter_, [kept])
        for world.alive in (True, False):
            assert filter_.open is world.alive
        assert await filter_.look_up(asked([kept])) == {}
        world.alive = True
        assert await filter_.look_up(asked([kept])) == {kept.id: kept}


async def test_nothing_is_answered_when_the_lease_lapses_while_redis_is_asked(world: World) -> None:
    kept = row()
    async with world.filter(timeout=10) as filter_:
        await world.remembered(filter_, [kept])
        world.server.pause()
        try:
            asking = asyncio.ensure_future(filter_.look_up(asked([kept])))
            await asyncio.wait({asking}, timeout=0.1)
            assert not asking.done()
            world.alive = False
        finally:
            world.server.resume()
        assert await asking == {}
        world.alive = True
        assert await filter_.look_up(asked([kept])) == {kept.id: kept}


async def test_rows_that_are_not_completed_are_never_kept(world: World) -> None:
    kept = row()
    others = [row(None, state=state) for state in State if state is not State.COMPLETED]
    others += [row(state=State.UNKNOWN), row(None), row(format_=FORMAT + 1)]
    async with world.filter() as filter_, world.redis() as redis:
        await world.remembered(filter_, [kept])
        filter_.remember([*others, row(id_=secrets.token_bytes(16))])
        await filter_.close()
        for other in others:
            assert await redis.exists(world.redis_key(other.id)) == 0


async def test_another_ledger_on_the_same_redis_sees_nothing_of_ours(world: World) -> None:
    kept = row()
    async with world.filter() as ours, world.filter(ledger=secrets.token_bytes(16)) as theirs:
        await world.remembered(ours, [kept])
        assert await theirs.look_up(asked([kept])) == {}


async def test_the_query_of_the_url_cannot_change_how_the_filter_works(world: World) -> None:
    query = "?socket_timeout=30&decode_responses=True&retry_on_timeout=True&max_connections=1&protocol=3"
    kept = [row(Result(Status.OK, ContentType.BYTES, b"\xff\xfe")) for _ in range(3)]
    async with world.filter(url=world.url + query) as filter_:
        assert await world.remembered(filter_, kept) == {one.id: one for one in kept}
        answers = await asyncio.gather(*(filter_.look_up(asked([one])) for one in kept))
        assert answers == [{one.id: one} for one in kept]


async def test_tls_is_chosen_by_the_url(world: World, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    parts = urlsplit(world.url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with tls_proxy((parts.hostname, parts.port), authority.issue("redis", "localhost")) as port:
        url = f"rediss://:{parts.password}@localhost:{port}/0?ssl_ca_certs={authority.file}"
        kept = row()
        async with world.filter(url=url) as filter_:
            assert await world.remembered(filter_, [kept]) == {kept.id: kept}
    assert world.notices == []
