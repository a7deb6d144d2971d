"""Deliveries: what a box knows about each record it was given, and where a process is to die over it."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal, get_args

from worker.engine.items import Item
from worker.errors import UsageError
from worker.rules.claims import Outcome
from worker.rules.record import Record
from worker.testing.life import Life
from worker.testing.topics import Position, position_of

CrashPoint = Literal[
    "after_claim",  # the claim is committed, the handler not called
    "before_effect",  # the handler is about to enter its effect block; without blocks, about to be called
    "inside_effect",  # entered, nothing done inside; transactional: its first statement executed, not committed
    "after_effect",  # the block was left without an error; without blocks, the handler has returned
    "before_completion",  # the handler has returned, its result is not stored
    "before_commit",  # the result is stored and published, the offset not committed
]


@dataclass(slots=True, eq=False)
class Delivery:
    """One record in a box."""

    record: Record
    crash: CrashPoint | None = None
    died: CrashPoint | None = None
    outcome: Outcome | None = None
    id: bytes | None = None
    runs: int = 0
    errors: list[BaseException] = field(default_factory=list)
    decided: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def decide(self, outcome: Outcome | None) -> None:
        """The record has this outcome now; a parked one may get another later. None: its process died."""
        self.outcome = outcome
        if not self.decided.done():
            self.decided.set_result(None)


class Deliveries:
    """All deliveries of a box, by the position of their record."""

    def __init__(self) -> None:
        self._all: dict[Position, Delivery] = {}

    def add(self, record: Record, crash: CrashPoint | None) -> Delivery:
        refuse_unknown(crash)
        delivery = self._all[position_of(record)] = Delivery(record, crash)
        return delivery

    def again(self, record: Record) -> Delivery:
        """The record will be read once more, and its outcome is open."""
        delivery = self.of(record)
        delivery.outcome = None
        delivery.decided = asyncio.get_running_loop().create_future()
        return delivery

    def of(self, record: Record) -> Delivery:
        return self._all[position_of(record)]

    def last(self, id_: bytes) -> Delivery | None:
        """The latest delivery that carried this entry's key."""
        return next((d for d in reversed(self._all.values()) if d.id == id_), None)

    def bury(self) -> None:
        """The process is gone: nobody decides about what it had in flight."""
        for delivery in self._all.values():
            if not delivery.decided.done():
                delivery.decide(None)


def refuse_unknown(crash: CrashPoint | None) -> None:
    """A misspelt crash point would never be reached."""
    if crash is not None and crash not in get_args(CrashPoint):
        raise UsageError(f"there is no crash point {crash!r}; choose one of {', '.join(get_args(CrashPoint))}")


class Fate:
    """Kills the process at the crash points its records were given."""

    def __init__(self, deliveries: Deliveries, life: Life) -> None:
        self._deliveries = deliveries
        self._life = life

    def strikes(self, item: Item, point: CrashPoint) -> bool:
        """Whether the process died here and now: the caller must do nothing more."""
        if self._life.ended:
            return True
        delivery = self._deliveries.of(item.record)
        if delivery.crash != point:
            return False
        delivery.crash, delivery.died = None, point
        self._life.end()
        self._deliveries.bury()
        return True

    async def reach(self, item: Item, point: CrashPoint) -> None:
        """Pass this point, or stand still here for ever."""
        if self.strikes(item, point):
            await asyncio.get_running_loop().create_future()
