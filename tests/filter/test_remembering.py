"""What is written to Redis, when, for how long, and what is dropped."""

import asyncio
import contextlib
from datetime import timedelta
from functools import partial

from redis.asyncio import Redis

from tests.filter.world import World, asked, row
from tests.waiting import eventually
from worker.filter.sealed import LARGEST
from worker.rules.claims import Status
from worker.rules.entries import Row
from worker.rules.results import ContentType, Result


async def kept(world: World, redis: Redis, rows: list[Row]) -> list[bool]:
    return [await redis.exists(world.redis_key(one.id)) == 1 for one in rows]


async def test_redis_forgets_an_entry_when_the_database_would(world: World) -> None:
    one = row(left=timedelta(seconds=90))
    world.now += 30
    async with world.filter() as filter_, world.redis() as redis:
        await world.remembered(filter_, [one])
        assert 59_000 < await redis.pttl(world.redis_key(one.id)) <= 60_000


async def test_entries_about_to_expire_are_not_written(world: World) -> None:
    rows = [row(left=timedelta(milliseconds=ms)) for ms in (-5000, 0, 1, 999, 1000)]
    async with world.filter() as filter_, world.redis() as redis:
        calls = await _commands(redis)
        filter_.remember(rows)
        await filter_.close()
        assert await _commands(redis) - calls == 1


async def test_large_results_are_left_to_postgres(world: World) -> None:
    bodies = [Result(Status.OK, ContentType.BYTES, b"x" * size) for size in (LARGEST, LARGEST + 1)]
    coded = Result(Status.REJECTED, ContentType.BYTES, b"x" * LARGEST, "code")
    rows = [row(result) for result in (*bodies, coded)]
    async with world.filter() as filter_, world.redis() as redis:
        filter_.remember(rows)
        await filter_.close()
        assert await kept(world, redis, rows) == [True, False, False]


async def test_a_full_queue_drops_and_never_waits(world: World) -> None:
    rows = [row() for _ in range(5000)]
    async with world.filter(timeout=5) as filter_, world.redis() as redis:
        for start in range(0, 5000, 500):
            filter_.remember(rows[start : start + 500])
        await filter_.close()
        assert await kept(world, redis, rows) == [True] * 2000 + [False] * 3000


async def test_what_is_added_while_a_pipeline_is_under_way_goes_with_the_next(world: World) -> None:
    first, second = [row() for _ in range(3)], [row() for _ in range(3)]
    async with world.filter(timeout=5) as filter_, world.redis() as redis:
        await world.remembered(filter_, first)
        calls = await _commands(redis)
        world.server.pause()
        try:
            filter_.remember(first)
            for _ in range(10):
                await asyncio.sleep(0)
            for one in second:
                filter_.remember([one, one])
        finally:
            world.server.resume()
        await eventually(lambda: filter_.look_up(asked(second)), message="second pipeline")
        await filter_.close()
        assert await kept(world, redis, second) == [True] * 3
        assert await _commands(redis) - calls == 6


async def test_a_row_added_in_the_step_in_which_a_pipeline_ends_is_written_too(world: World) -> None:
    async with world.filter(timeout=5) as filter_, world.redis() as redis:
        for _ in range(10):
            late = row()
            filter_.remember([row()])
            (writer,) = _running()
            while not writer.done():  # noqa: ASYNC110 - the very step counts
                await asyncio.sleep(0)
            filter_.remember([late])
            await eventually(partial(redis.exists, world.redis_key(late.id)), message="the late row")


async def test_replies_behind_a_refused_write_are_read_by_nobody(world: World) -> None:
    opened = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                # The second reply comes later, when the next request would be waiting for its own.
                writer.write(b"-OOM command not allowed\r\n" if len(opened) == 1 else b"*1\r\n$-1\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with world.filter(url=f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0") as filter_:
        filter_.remember([row(), row()])
        await asyncio.wait(_running())
        assert await filter_.look_up(asked([row()])) == {}
        assert len(opened) == 2
    server.close()


async def test_closing_writes_what_waits(world: World) -> None:
    rows = [row() for _ in range(1200)]
    async with world.filter(timeout=5) as filter_, world.redis() as redis:
        filter_.remember(rows)
        await filter_.close()
        assert all(await kept(world, redis, rows))
        late = row()
        filter_.remember([late])
        assert not _running()
        await filter_.close()
        assert await kept(world, redis, [late]) == [False]


async def test_closing_does_not_wait_for_a_frozen_redis(world: World) -> None:
    async with world.filter(timeout=0.2) as filter_:
        await world.remembered(filter_, [row()])
        world.server.pause()
        try:
            filter_.remember([row() for _ in range(2000)])
            async with asyncio.timeout(1):
                await filter_.close()
        finally:
            world.server.resume()
        assert not _running()


async def test_a_cancelled_close_leaves_nothing_running(world: World) -> None:
    async with world.filter(timeout=5) as filter_:
        await world.remembered(filter_, [row()])
        world.server.pause()
        try:
            filter_.remember([row()])
            closing = asyncio.ensure_future(filter_.close())
            await asyncio.wait({closing}, timeout=0.05)
            closing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await closing
            assert not _running()
        finally:
            world.server.resume()


async def test_while_writes_are_left_alone_nothing_gathers(world: World) -> None:
    async with world.filter(timeout=0.2) as filter_, world.redis() as redis:
        await world.remembered(filter_, [row()])
        world.server.kill()

        def refused() -> bool:
            filter_.remember([row()])
            return bool(world.events("writes"))

        await eventually(refused, message="writes left alone")
        dropped = row()
        filter_.remember([dropped])
        assert not _running()
        world.server.start()

        async def again() -> bool:
            one = row()
            filter_.remember([one])
            return (await filter_.look_up(asked([one]))) != {} or "filter_resumed" in world.events("writes")

        await eventually(again, message="writes again")
        assert await kept(world, redis, [dropped]) == [False]


async def _commands(redis: Redis) -> int:
    """How many SETs the server has run."""
    stats = await redis.info("commandstats")
    return int(stats.get("cmdstat_set", {}).get("calls", 0))


def _running() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "filter writer"]
