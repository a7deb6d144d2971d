"""Redis is killed, frozen, flushed, full: duplicates cost a little more, and nothing else happens."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from tests.filter.world import World, asked, row
from tests.waiting import eventually
from worker.filter.filter import Filter

T = TypeVar("T")
TIMEOUT = 0.3
SLACK = 0.25


async def timed(work: Awaitable[T]) -> tuple[T, float]:
    begun = time.monotonic()
    return await work, time.monotonic() - begun


async def until_paused(filter_: Filter) -> list[float]:
    """Ask until the filter is left alone; gives what each call took."""
    took = []
    while filter_.open:
        answer, seconds = await timed(filter_.look_up(asked([row()])))
        assert answer == {}
        took.append(seconds)
    return took


async def test_a_killed_redis_is_left_alone_and_used_again_when_it_is_back(world: World) -> None:
    kept = row()
    async with world.filter(timeout=TIMEOUT) as filter_:
        await world.remembered(filter_, [kept])
        world.server.kill()
        took = await until_paused(filter_)
        assert len(took) == 3
        assert sum(took) < TIMEOUT
        _, seconds = await timed(filter_.look_up(asked([kept])))
        assert seconds < TIMEOUT / 2
        world.server.start()
        await eventually(lambda: filter_.open, message="half open")
        assert await filter_.look_up(asked([kept])) == {}
        assert filter_.open
        await world.remembered(filter_, [kept])
    assert world.events("reads") == ["filter_paused", "filter_resumed"]


async def test_a_frozen_redis_costs_one_timeout_per_pause(world: World) -> None:
    kept = row()
    async with world.filter(timeout=TIMEOUT) as filter_:
        await world.remembered(filter_, [kept])
        world.server.pause()
        try:
            took = await until_paused(filter_)
            assert len(took) == 3
            assert max(took) < TIMEOUT + SLACK
            await eventually(lambda: filter_.open, message="half open")
            # Many ask at once: one pays, the others go straight to Postgres.
            calls = [asyncio.ensure_future(timed(filter_.look_up(asked([kept])))) for _ in range(8)]
            waits = sorted(seconds for _, seconds in await asyncio.gather(*calls))
            assert waits[-1] < TIMEOUT + SLACK
            assert waits[-2] < TIMEOUT / 2
            assert not filter_.open
        finally:
            world.server.resume()
        await eventually(lambda: filter_.open, message="half open again")
        assert await filter_.look_up(asked([kept])) == {kept.id: kept}
    assert world.events("reads") == ["filter_paused", "filter_resumed"]


async def test_a_cancelled_try_leaves_the_turn_to_the_next_caller(world: World) -> None:
    async with world.filter(timeout=TIMEOUT) as filter_:
        world.server.pause()
        try:
            await until_paused(filter_)
            await eventually(lambda: filter_.open, message="half open")
            trial = asyncio.ensure_future(filter_.look_up(asked([row()])))
            await asyncio.wait({trial}, timeout=0.05)
            assert not filter_.open
            trial.cancel()
            await asyncio.wait({trial})
            assert trial.cancelled()
            await eventually(lambda: filter_.open, timeout=0.1, message="another may try")
        finally:
            world.server.resume()


async def test_connecting_and_logging_in_share_the_one_timeout(world: World) -> None:
    world.server.pause()
    try:
        async with world.filter(timeout=TIMEOUT) as filter_:
            answer, seconds = await timed(filter_.look_up(asked([row()])))
            assert answer == {}
            assert seconds < TIMEOUT + SLACK
    finally:
        world.server.resume()


async def test_a_flushed_redis_forgets_and_learns_again(world: World) -> None:
    kept = [row() for _ in range(10)]
    async with world.filter() as filter_, world.redis() as redis:
        await world.remembered(filter_, kept)
        await redis.flushall()
        assert await filter_.look_up(asked(kept)) == {}
        await world.remembered(filter_, kept)
    assert world.notices == []


async def test_a_full_redis_refuses_new_entries_and_still_answers_with_old_ones(world: World) -> None:
    old = row()
    async with world.filter() as filter_, world.redis() as redis:
        await world.remembered(filter_, [old])
        await redis.config_set("maxmemory", "1")
        try:

            async def refused() -> bool:
                filter_.remember([row()])
                return bool(world.events("writes"))

            await eventually(refused, message="writes left alone")
            assert await filter_.look_up(asked([old])) == {old.id: old}
            assert filter_.open
        finally:
            await redis.config_set("maxmemory", "0")
    assert world.events("reads") == []


async def test_a_wrong_password_is_told_once_and_without_the_password(world: World) -> None:
    url = world.url.replace("redis://:", "redis://:hunter2")
    async with world.filter(url=url) as filter_:
        await until_paused(filter_)
    (told,) = world.notices
    assert told[0] == "filter_paused"
    assert "hunter2" not in str(told)


async def test_connections_that_redis_closed_in_between_are_replaced(world: World) -> None:
    kept = row()
    async with world.filter() as filter_, world.redis() as redis:
        await world.remembered(filter_, [kept])
        await redis.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: filter_.look_up(asked([kept])), message="answered over a new connection")
    assert world.notices == []


async def connections(world: World) -> int:
    """Connections at the server, without the one that asks."""
    async with world.redis() as redis:
        return len(await redis.client_list()) - 1


async def test_cancelled_calls_leave_no_connection_and_no_reply_behind(world: World) -> None:
    kept = [row(fence=n) for n in range(64)]
    async with world.filter() as filter_:
        await world.remembered(filter_, kept)

        async def cancelled_after(steps: int) -> None:
            call = asyncio.ensure_future(filter_.look_up(asked(kept)))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait({call})

        for steps in range(40):
            one = kept[steps % 64]
            _, answer = await asyncio.gather(cancelled_after(steps), filter_.look_up(asked([one])))
            assert answer == {one.id: one}
        assert await filter_.look_up(asked(kept)) == {one.id: one for one in kept}
        assert filter_.open

        async def few() -> bool:
            return await connections(world) <= 3

        await eventually(few, message="broken connections gone")
    await eventually(lambda: _none_left(world), message="all connections gone")


async def test_timeouts_and_failures_leave_no_connection_behind(world: World) -> None:
    async with world.filter(timeout=0.05) as filter_:
        assert await filter_.look_up(asked([row()])) == {}
        world.server.pause()
        try:
            await asyncio.gather(*(filter_.look_up(asked([row()])) for _ in range(40)))
            assert not filter_.open
        finally:
            world.server.resume()
        await eventually(lambda: _none_left(world), message="connections that timed out gone")
    await eventually(lambda: _none_left(world), message="all connections gone")


async def test_closing_while_calls_are_under_way_gives_misses_and_leaves_nothing(world: World) -> None:
    for steps in range(12):
        async with world.filter(timeout=5) as filter_:
            calls = [asyncio.ensure_future(filter_.look_up(asked([row()]))) for _ in range(4)]
            for _ in range(steps):
                await asyncio.sleep(0)
            await filter_.close()
            assert not filter_.open
            assert await asyncio.gather(*calls) == [{}] * 4
            assert await filter_.look_up(asked([row()])) == {}
            await eventually(lambda: _none_left(world), message="all connections gone")


async def _none_left(world: World) -> bool:
    return await connections(world) == 0
