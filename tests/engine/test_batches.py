"""Batches: nothing waits at low load, crumbs wait for a call under way, and not for one that hangs."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from tests.waiting import eventually
from worker.engine.batches import CRUMBS, Batches
from worker.engine.tasks import Tasks

WORTH = 60


class Calls:
    """Batches whose calls end when they are let go."""

    def __init__(self, room: Callable[[], int] | None = None, size: int = 100) -> None:
        self.sizes: list[int] = []
        self.ends: list[asyncio.Event] = []
        self.batches: Batches[int] = Batches(
            "test", self._call, Tasks(), size=size, calls=2, crumbs=CRUMBS, worth=WORTH, room=room
        )
        self._over = False

    async def _call(self, batch: list[int]) -> None:
        self.sizes.append(len(batch))
        self.ends.append(asyncio.Event())
        if not self._over:
            await self.ends[-1].wait()

    async def begun(self, *sizes: int) -> None:
        async def so() -> bool:
            return self.sizes == list(sizes)

        await eventually(so, 5, f"{self.sizes} are not {sizes}", every=0.001)

    async def close(self) -> None:
        self._over = True
        for end in self.ends:
            end.set()

        async def nothing_left() -> bool:
            return not len(self.batches)

        await eventually(nothing_left, 5, "calls do not end", every=0.001)


@pytest_asyncio.fixture
async def calls(request: pytest.FixtureRequest) -> AsyncIterator[Calls]:
    made = Calls(**getattr(request, "param", {}))
    yield made
    await made.close()


async def test_crumbs_wait_for_a_call_for_many_and_go_together(calls: Calls) -> None:
    made = calls.batches
    made.extend(range(CRUMBS))
    await calls.begun(CRUMBS)
    made.extend(range(3))
    made.add(4)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.sizes == [CRUMBS]
    calls.ends[0].set()
    await calls.begun(CRUMBS, 4)


async def test_where_there_are_only_crumbs_none_waits(calls: Calls) -> None:
    made = calls.batches
    made.add(1)
    await calls.begun(1)
    made.add(2)
    await calls.begun(1, 1)


async def test_many_do_not_wait_for_the_call_under_way(calls: Calls) -> None:
    made = calls.batches
    made.add(1)
    await calls.begun(1)
    made.extend(range(CRUMBS))
    await calls.begun(1, CRUMBS)
    made.extend(range(300))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.sizes == [1, CRUMBS], "never more calls at once than allowed"


@pytest.mark.parametrize("calls", [{"room": lambda: 5}], indirect=True)
async def test_what_little_room_leaves_of_many_is_crumbs_too(calls: Calls) -> None:
    made = calls.batches
    made.extend(range(50))
    await calls.begun(5)
    made.extend(range(50))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.sizes == [5]
    calls.ends[0].set()
    await calls.begun(5, 5)


async def test_crumbs_do_not_wait_for_a_call_that_hangs(calls: Calls) -> None:
    made = calls.batches
    made.extend(range(CRUMBS))
    await calls.begun(CRUMBS)
    made.add(2)

    async def let_go() -> bool:
        made.kick()  # as every tick does
        await asyncio.sleep(0)
        return len(calls.sizes) == 2

    await eventually(let_go, 5, "the crumb waits for ever", every=0.01)
    assert calls.sizes == [CRUMBS, 1]


async def test_what_is_added_while_more_comes_goes_together_when_no_more_does(calls: Calls) -> None:
    made = calls.batches
    for _ in range(3):
        made.extend(range(5), more=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert calls.sizes == []
    made.gathered()
    await calls.begun(15)


async def test_as_many_as_are_worth_a_call_wait_for_no_more(calls: Calls) -> None:
    made = calls.batches
    made.extend(range(WORTH - 1), more=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.sizes == []
    made.extend(range(1), more=True)
    await calls.begun(WORTH)


@pytest.mark.parametrize("calls", [{"room": lambda: WORTH // 2}], indirect=True, ids=["room for half"])
async def test_a_room_for_fewer_than_are_worth_a_call_is_used_when_no_more_comes(calls: Calls) -> None:
    calls.batches.extend(range(WORTH), more=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.sizes == []
    calls.batches.gathered()
    await calls.begun(WORTH // 2, WORTH // 2)


@pytest.mark.parametrize("calls", [{"size": CRUMBS // 2}], indirect=True, ids=["small calls"])
async def test_full_calls_wait_for_nothing_however_small_they_are(calls: Calls) -> None:
    calls.batches.extend(range(3 * CRUMBS), more=True)
    await calls.begun(CRUMBS // 2, CRUMBS // 2)
