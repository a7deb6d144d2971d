"""Batches: nothing waits at low load, crumbs wait for a call under way, and not for one that hangs."""

import asyncio

import pytest

from tests.waiting import eventually
from worker.engine.batches import CRUMBS, Batches
from worker.engine.tasks import Tasks


class Calls:
    """Calls that end when they are let go."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.ends: list[asyncio.Event] = []

    async def call(self, batch: list[int]) -> None:
        self.sizes.append(len(batch))
        self.ends.append(asyncio.Event())
        await self.ends[-1].wait()

    async def begun(self, *sizes: int) -> None:
        async def so() -> bool:
            return self.sizes == list(sizes)

        await eventually(so, 5, f"{self.sizes} are not {sizes}", every=0.001)

    def end_all(self) -> None:
        for end in self.ends:
            end.set()


@pytest.fixture
def calls() -> Calls:
    return Calls()


def batches(calls: Calls) -> Batches[int]:
    return Batches("test", calls.call, Tasks(), size=100, calls=2, crumbs=CRUMBS)


async def test_the_first_goes_out_at_once_and_crumbs_go_with_the_next_call(calls: Calls) -> None:
    made = batches(calls)
    made.add(1)
    await calls.begun(1)
    made.extend(range(3))
    made.add(4)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.sizes == [1]
    calls.ends[0].set()
    await calls.begun(1, 4)
    calls.end_all()


async def test_many_do_not_wait_for_the_call_under_way(calls: Calls) -> None:
    made = batches(calls)
    made.add(1)
    await calls.begun(1)
    made.extend(range(CRUMBS))
    await calls.begun(1, CRUMBS)
    made.extend(range(300))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.sizes == [1, CRUMBS], "never more calls at once than allowed"
    calls.end_all()


async def test_crumbs_do_not_wait_for_a_call_that_hangs(calls: Calls) -> None:
    made = batches(calls)
    made.add(1)
    await calls.begun(1)
    made.add(2)

    async def let_go() -> bool:
        made.kick()  # as every tick does
        await asyncio.sleep(0)
        return len(calls.sizes) == 2

    await eventually(let_go, 5, "the crumb waits for ever", every=0.01)
    assert calls.sizes == [1, 1]
    calls.end_all()
