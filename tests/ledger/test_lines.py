"""Lines are shared fairly: whoever waits longest is next, also when somebody asks again at once."""

import asyncio
from typing import NoReturn

from worker.ledger.connect import Lines


async def never() -> NoReturn:
    raise AssertionError("nobody needs a connection here")


async def test_a_line_goes_to_whoever_waits_longest() -> None:
    lines = Lines(never, 1)
    order: list[str] = []

    async def greedy() -> None:
        for _ in range(5):
            async with lines.take():
                order.append("greedy")
                await asyncio.sleep(0)

    async def patient(name: str) -> None:
        async with lines.take():
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(greedy(), patient("first"), patient("second"))
    assert order == ["greedy", "first", "second", *["greedy"] * 4]


async def test_a_caller_who_gave_up_keeps_no_line() -> None:
    lines = Lines(never, 1)
    async with lines.take():
        waiting = [asyncio.create_task(lines.take().__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    # One gave up while it waited, the other is cancelled after it was given the line and before it took it.
    waiting[1].cancel()
    await asyncio.wait(waiting)
    async with asyncio.timeout(1), lines.take():
        pass
