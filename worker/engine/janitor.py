"""The janitor: cleans up after time and crashes, in every worker, without a leader.

Each duty is harmless if two processes do it at once, and goes its own round: one that waits (for a reconciler, between
two batches of a prune) delays no other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from worker.engine.ports import Notice
from worker.engine.routes import Route
from worker.engine.tasks import Tasks
from worker.errors import ServiceUnavailable
from worker.rules.writes import Parked


@dataclass(frozen=True, slots=True)
class Duty:
    """Something to do every so many seconds."""

    name: str
    every: float
    once: Callable[[], Awaitable[object]]


class Janitor:
    """Goes round its duties; Postgres or Kafka being away only delays them."""

    def __init__(self, duties: Sequence[Duty], notice: Notice) -> None:
        self._duties = duties
        self._notice = notice

    @property
    def duties(self) -> list[str]:
        """What they are called."""
        return [duty.name for duty in self._duties]

    def start(self, tasks: Tasks) -> None:
        """Go round for ever, a task for each duty."""
        for duty in self._duties:
            tasks.spawn(self._go_round(duty), duty.name)

    async def once(self) -> None:
        """Do every duty once, in the order in which they were given; what breaks is raised."""
        for duty in self._duties:
            await duty.once()

    async def _go_round(self, duty: Duty) -> None:
        while True:
            await asyncio.sleep(duty.every)
            try:
                await duty.once()
            except ServiceUnavailable as error:
                self._notice("janitor_delayed", duty=duty.name, error=str(error), next="trying again")


class Settling(Protocol):
    async def end_lapsed(self) -> list[int]: ...
    async def settle(self) -> object: ...


class Lot(Protocol):
    async def take_due(
        self, operations: Sequence[int], most: int, again_in: float, *, topics: Sequence[str] = ()
    ) -> list[Parked]: ...


class Swept(Protocol):
    """A ledger whose claims and parked records are looked after."""

    @property
    def settling(self) -> Settling: ...
    @property
    def parking(self) -> Lot: ...
    @property
    def finals(self) -> Any: ...
    async def release_strays(self) -> int: ...


def claim_duties(ledger: Swept, every: float) -> list[Duty]:
    """Forget finished claims, end lapsed sessions and settle theirs, release strays."""

    async def settle() -> None:
        await ledger.settling.end_lapsed()
        await ledger.settling.settle()

    return [
        Duty("tidy", every / 5, ledger.finals.tidy),
        Duty("settle", every, settle),
        Duty("strays", every * 4, ledger.release_strays),
    ]


def parked_duty(
    lot: Lot, bring: Callable[[Parked], None], routes: Sequence[Route], *, every: float, hold: float
) -> Duty:
    """Bring parked records of these handlers, and letters owed on their topics, back when their time has come.

    Records of handlers that are paused stay parked.
    """
    topics = sorted({topic for route in routes for topic in route.handler.topics})

    async def bring_due() -> int:
        operations = sorted({route.plan.operation for route in routes if not route.all_paused})
        due = await lot.take_due(operations, 100, hold * 2, topics=topics)
        for parked in due:
            bring(parked)
        return len(due)

    return Duty("parked", every / 5, bring_due)
