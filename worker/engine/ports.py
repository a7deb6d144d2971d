"""What the engine needs from the outside, and nothing more."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from worker.rules.context import Transaction
from worker.rules.doubts import Doubt, Evidence, Happened, Ruled
from worker.rules.entries import Claimable, Row, Won
from worker.rules.outgoing import Outgoing
from worker.rules.record import Record
from worker.rules.results import Result
from worker.rules.writes import Claimed, Completion, Doubted, Failed, Parking, Place, Released

Notice = Callable[..., None]


class Lease(Protocol):
    """The right to start work."""

    def safe(self) -> bool: ...
    def covers(self, fence: int) -> bool: ...


class Claims(Protocol):
    """Claims and look-ups; calls go on until the ledger answers."""

    async def claim(self, offers: Sequence[Claimable], *, look_first: bool = False) -> Claimed: ...
    async def claim_again(self, offers: Sequence[Claimable]) -> dict[bytes, Won]: ...
    async def look_up(self, ids: Sequence[bytes]) -> dict[bytes, Row]: ...


class Finals(Protocol):
    """Final writes; each gives back the ids that someone else had decided first."""

    async def complete(self, done: Sequence[Completion]) -> set[bytes]: ...
    async def complete_late(self, done: Sequence[Completion]) -> set[bytes]: ...
    async def fail(self, failed: Sequence[Failed]) -> set[bytes]: ...
    async def release(self, released: Sequence[Released]) -> set[bytes]: ...
    async def doubt(self, doubted: Sequence[Doubted]) -> set[bytes]: ...


class Filter(Protocol):
    """Answers some duplicates without the ledger; what it does not answer must be asked there."""

    @property
    def open(self) -> bool: ...
    async def look_up(self, wanted: Mapping[bytes, bytes | None]) -> dict[bytes, Row]: ...
    def remember(self, rows: Iterable[Row]) -> None: ...


class ParkingLot(Protocol):
    """Records kept in the ledger."""

    async def park(self, parkings: Sequence[Parking]) -> set[Place]: ...
    async def finish(self, places: Sequence[Place]) -> None: ...


class Transactions(Protocol):
    """Transactions that commit with the completion."""

    async def run(self, id_: bytes, fence: int, body: Callable[[Transaction], Awaitable[Result]]) -> Result | None: ...


class Publisher(Protocol):
    """Publishes records; gives per record None when acknowledged by all, or what went wrong."""

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Exception | None]: ...


class Doubts(Protocol):
    """Entries in doubt: taken for a probe, settled by evidence, reported in the end."""

    async def due(self, operations: Sequence[int]) -> list[int]: ...
    async def take(self, operation: int, most: int, again_in: float) -> list[Doubt]: ...
    async def rule(self, evidence: Evidence) -> Ruled: ...
    async def note(self, doubt: Doubt, said: str, *, again_in: float) -> None: ...
    async def put_off(self, doubt: Doubt, again_in: float) -> None: ...
    async def reported(self, doubt: Doubt, how: str) -> None: ...
    async def history(self, id_: bytes) -> list[Happened]: ...
    async def now(self) -> datetime: ...


class Originals(Protocol):
    """Records as they stand in their topics; None for one that is gone."""

    async def read(self, topic: str, partition: int, offset: int) -> Record | None: ...


@dataclass(frozen=True, slots=True)
class Ledger:
    """The parts of a ledger the engine works with."""

    lease: Lease
    claims: Claims
    finals: Finals
    parking: ParkingLot
    transactions: Transactions
    filter: Filter | None = None
