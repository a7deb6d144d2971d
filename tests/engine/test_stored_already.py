"""Results that are stored already are told later, together; until then their worker is busy, and errors end it."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import eventually
from worker.engine.finisher import Finisher
from worker.engine.items import Item
from worker.engine.tasks import Tasks
from worker.rules.record import Record


class Owner:
    """Hears of completed items."""

    crowd = 0

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.told: list[int] = []

    def completed(self, items: Sequence[Item]) -> None:
        if self.error is not None:
            raise self.error
        self.told += [item.offset for item in items]

    def claim_over(self, item: Item, *, again: bool = False) -> None:
        raise AssertionError


def finisher_of(owner: Owner, tasks: Tasks) -> Finisher:
    finals: Any = SimpleNamespace()
    return Finisher(finals, owner, tasks, batch=10, now=lambda: 0.0, notice=lambda *_, **__: None)


async def test_a_worker_is_busy_until_its_stored_results_are_told() -> None:
    owner, tasks = Owner(), Tasks()
    finisher = finisher_of(owner, tasks)
    owner.crowd = 1
    for offset in range(3):
        finisher.completed(Item(Record("t", 0, offset), None))
    assert finisher.busy == 3

    async def idle() -> bool:
        return not finisher.busy

    await eventually(idle, 5, "never told", every=0.001)
    assert owner.told == [0, 1, 2]
    await tasks.close()


async def test_an_error_while_stored_results_are_told_ends_the_worker() -> None:
    tasks = Tasks()
    finisher_of(Owner(ValueError("a defect")), tasks).completed(Item(Record("t", 0, 0), None))
    with pytest.raises(ValueError, match="a defect"):
        await asyncio.wait_for(tasks.failed, 5)
    await tasks.close()
