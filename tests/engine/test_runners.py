"""Runners: handlers that wait spread over all runners at once, handlers that never wait share one."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest_asyncio

from worker.engine.items import Item
from worker.engine.runners import Runner, Runners
from worker.engine.tasks import Tasks


@pytest_asyncio.fixture
async def tasks() -> AsyncIterator[Tasks]:
    made = Tasks()
    yield made
    await made.close()


def items(count: int) -> Any:
    return [SimpleNamespace(number=number) for number in range(count)]


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_handlers_that_wait_all_run_after_a_few_steps_of_the_loop(tasks: Tasks) -> None:
    gate = asyncio.Event()
    running: list[Item] = []

    async def call(item: Item, runner: Runner) -> None:
        running.append(item)
        await gate.wait()

    runners = Runners(call, tasks, limit=100)
    runners.start_all(items(150))
    await steps(20)
    assert len(running) == 100, "as many as may run, each waking others"
    gate.set()
    await steps(20)
    assert len(running) == 150
    gate.clear()
    runners.start_all(items(100))
    await steps(20)
    assert len(running) == 250, "those that rested are woken as fast"
    gate.set()
    await steps(5)


async def test_handlers_that_never_wait_run_one_after_another_in_one_runner(tasks: Tasks) -> None:
    seen: list[tuple[Any, Runner]] = []

    async def call(item: Item, runner: Runner) -> None:
        seen.append((item, runner))

    runners = Runners(call, tasks, limit=100)
    given = items(50)
    runners.start_all(given)
    await steps(20)
    assert [item for item, _ in seen] == given
    assert len({runner for _, runner in seen}) == 1
