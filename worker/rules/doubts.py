"""Entries in doubt: what is known about one, what someone says about it, and what that word did."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from worker.rules.claims import State
from worker.rules.record import Record
from worker.rules.results import Result


@dataclass(frozen=True, slots=True)
class Doubt:
    """An entry in doubt, taken for one probe."""

    id: bytes
    operation: int
    fence: int
    probes: int
    taken_at: datetime  # by the database's clock: whatever is asked now is asked later than this
    age: float  # seconds in doubt
    quiet_in: float  # seconds until `not_executed` is believed
    fingerprint: bytes | None
    format: int
    attempts: int
    crashes: int
    key: bytes | None
    tenant: bytes | None
    topic: str | None  # where its first record came from
    partition: int | None
    offset: int | None
    parked: Record | None = None
    evidence: Result | None = None  # came while the entry was in progress: it was executed


@dataclass(frozen=True, slots=True)
class Evidence:
    """What someone says about an entry: that it was executed, with this result, or, without one, that it was not."""

    id: bytes
    by: str  # how it is written into the history: probe, settle, resolve
    result: Result | None = None
    fence: int | None = None  # the claim it is about; only `executed` may leave it out
    asked_at: datetime | None = None  # database time before which nobody was asked; counts for `not_executed`
    forced: bool = False  # believe `not_executed` whatever the quiet time
    note: str = ""

    @property
    def word(self) -> str:
        return "not_executed" if self.result is None else "executed"


class Ruling(StrEnum):
    """What a word about an entry did."""

    SETTLED = "settled"
    ABSENT = "absent"  # there is no such entry; nothing was changed
    KEPT = "kept"  # executed, said while the entry is in progress: looked at should it ever be in doubt
    EARLY = "early"  # not executed, said before the quiet time was over: still unknown
    COMPLETED = "completed"  # it has its result already, and keeps it
    REFUSED = "refused"  # about another claim, or about an entry that is not in doubt


@dataclass(frozen=True, slots=True)
class Ruled:
    """A ruling, and where the entry stands now."""

    ruling: Ruling
    state: State | None = None
    fence: int | None = None
    quiet_in: float | None = None


@dataclass(frozen=True, slots=True)
class Happened:
    """One line of an entry's history."""

    at: datetime
    event: str
    fence: int | None
    detail: str | None
