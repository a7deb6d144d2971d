"""Claims are made by the batch, also when handlers end one by one; and what can start does not wait for a batch."""

import asyncio
from typing import Any

import pytest

from worker import Context, Registry, Transaction
from worker.testing import Box


@pytest.mark.parametrize("in_flight", [32, 150])
async def test_while_enough_waits_to_start_no_crumbs_are_claimed(in_flight: int) -> None:
    registry = Registry()
    claims: set[int] = set()

    @registry.handler("line", scope="jobs", key="id", kind="repeatable")
    async def run(message: dict[str, Any], context: Context) -> None:
        claims.add(context.fence)
        await asyncio.sleep((1 + message["id"] % 7) / 1000)

    async with Box(registry, in_flight=in_flight, concurrency=4) as box:
        await asyncio.gather(*(box.deliver(run, {"id": number}) for number in range(300)))
    assert len(claims) < 40


async def test_what_could_run_now_is_claimed_now() -> None:
    registry = Registry()
    started: list[int] = []

    @registry.handler("line", scope="jobs", key="id", kind="repeatable")
    async def run(message: dict[str, Any]) -> None:
        started.append(message["id"])
        if message["id"] < 7:
            await asyncio.sleep(20)

    async with Box(registry, in_flight=8, concurrency=8) as box:
        deliveries = [asyncio.create_task(box.deliver(run, {"id": number})) for number in range(30)]
        await asyncio.wait(deliveries[7:])
        assert sorted(started) == list(range(30)), "one free place is enough for all that end at once"
        assert not any(task.done() for task in deliveries[:7])
        await asyncio.wait(deliveries)


async def test_a_crowd_of_transactional_handlers_holds_up_no_others() -> None:
    registry = Registry()
    running = asyncio.Event()

    @registry.handler("slow", scope="jobs", key="id", kind="transactional")
    async def slow(message: dict[str, Any], transaction: Transaction) -> None:
        running.set()
        await asyncio.sleep(20)

    @registry.handler("quick", scope="jobs", key="id", kind="repeatable")
    async def quick(message: dict[str, Any]) -> None:
        await asyncio.sleep(0.001)

    async with Box(registry, in_flight=40, concurrency=2) as box:
        crowd = [asyncio.create_task(box.deliver(slow, {"id": number})) for number in range(30)]
        await running.wait()
        others = [asyncio.create_task(box.deliver(quick, {"id": number})) for number in range(60)]
        await asyncio.wait(others)
        assert not any(task.done() for task in crowd)
        await asyncio.wait(crowd)
