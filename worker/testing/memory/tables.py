"""The tables of a ledger in memory; several ledgers may share them, as several processes share one database."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from worker.ledger.fences import BLOCK
from worker.rules.claims import Kind, State
from worker.rules.entries import Row
from worker.rules.record import Record
from worker.rules.results import Result
from worker.rules.writes import Place
from worker.testing.clock import VirtualClock


@dataclass(slots=True)
class Entry:
    """The row that remembers one (scope, operation, tenant, key). Times are seconds of the tables' clock."""

    id: bytes
    operation: int
    kind: Kind
    fence: int
    expires_at: float
    fingerprint: bytes | None
    format: int
    tenant: bytes | None
    key: bytes | None
    source: tuple[int | None, int, int]  # topic number, partition, offset
    state: State = State.IN_PROGRESS
    attempts: int = 0
    crashes: int = 0
    held: int = 0
    result: Result | None = None
    due_at: float | None = None
    failed_at: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What an operation declares: how long entries are kept, and how long after its timeout a request may still act."""

    ttl: float
    quiet: float


@dataclass(slots=True)
class SessionRow:
    """One running process that claims or settles."""

    id: int
    role: str
    lease: float
    lease_until: float
    steady_since: float
    ended_at: float | None = None


@dataclass(slots=True)
class Doubt:
    """The side of an unknown entry that the janitor finds."""

    operation: int
    fence: int
    since: float
    quiet_until: float
    due_at: float
    probes: int = 0
    reported_at: float | None = None


@dataclass(slots=True)
class ParkedRow:
    """A record that cannot be finished now; without a due time something else must happen first."""

    record: Record
    operation: int | None
    reason: str
    due_at: float | None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to an entry besides its states."""

    id: bytes
    event: str
    fence: int | None
    detail: str
    body: bytes | None
    at: float = 0.0


@dataclass(slots=True)
class Tables:
    """Everything the ledger remembers."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    entries: dict[bytes, Entry] = field(default_factory=dict)
    open_claims: dict[int, tuple[int, tuple[bytes, ...]]] = field(default_factory=dict)  # fence: session, ids
    sessions: dict[int, SessionRow] = field(default_factory=dict)
    doubts: dict[bytes, Doubt] = field(default_factory=dict)
    parked: dict[Place, ParkedRow] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)
    evidence: dict[bytes, Result] = field(default_factory=dict)  # said while the entry was in progress
    operations: dict[str, int] = field(default_factory=dict)
    terms: dict[int, Terms] = field(default_factory=dict)  # by operation
    topics: dict[str, int] = field(default_factory=dict)
    _fences: int = 0

    def draw_fences(self) -> int:
        """The first fence of a fresh block."""
        self._fences += BLOCK
        return self._fences

    def claimed(self, id_: bytes, fence: int) -> Entry | None:
        """The entry, if this very claim of it is in progress."""
        entry = self.entries.get(id_)
        return entry if entry is not None and entry.fence == fence and entry.state is State.IN_PROGRESS else None

    def row(self, entry: Entry) -> Row:
        """The entry as the ledger tells it."""
        return Row(
            id=entry.id,
            state=entry.state,
            fence=entry.fence,
            fingerprint=entry.fingerprint,
            format=entry.format,
            attempts=entry.attempts,
            crashes=entry.crashes,
            result=entry.result,
            due_in=None if entry.due_at is None else entry.due_at - self.clock(),
            failed_at=None if entry.failed_at is None else self.clock.date(entry.failed_at),
            expires_at=self.clock.date(entry.expires_at),
        )

    def keep(self, entry: Entry, ttl: float) -> None:
        """Keep an entry for a whole TTL from now if less than half of one is left."""
        now = self.clock()
        if entry.expires_at < now + ttl / 2:
            entry.expires_at = now + ttl

    def keep_as_declared(self, entry: Entry) -> None:
        """As keep, by the TTL that was registered for the entry's operation."""
        terms = self.terms.get(entry.operation)
        if terms is not None:
            self.keep(entry, terms.ttl)

    def note(self, event: Event) -> None:
        """Keep what happened, once per entry, event and fence."""
        if not any((e.id, e.event, e.fence) == (event.id, event.event, event.fence) for e in self.history):
            self.tell(event)

    def tell(self, event: Event) -> None:
        """Write what happened into the history."""
        self.history.append(replace(event, detail=text(event.detail), at=self.clock()))

    def leave_doubt(self, ids: Iterable[bytes]) -> None:
        """End the doubts of these entries and wake what is parked for them."""
        ids = set(ids)
        for id_ in ids:
            self.doubts.pop(id_, None)
        self.wake_parked(ids)

    def note_failure(self, entry: Entry, error: str) -> None:
        entry.error = text(error)
        if entry.failed_at is None:
            entry.failed_at = self.clock()

    def doubt(self, entry: Entry, *, lease: float, first_probe: float) -> None:
        """Write the side of the transition to unknown that the janitor finds."""
        now = self.clock()
        terms = self.terms.get(entry.operation)
        quiet = 0.0 if terms is None else terms.quiet
        self.doubts[entry.id] = Doubt(entry.operation, entry.fence, now, now + quiet + lease, now + first_probe)

    def wake_parked(self, ids: Iterable[bytes]) -> None:
        """What waited for these entries may be tried now."""
        wanted = set(ids)
        for place, row in self.parked.items():
            if place[0] in wanted:
                row.due_at = self.clock()


def text(given: str) -> str:
    """What a text column of Postgres would hold."""
    return given.encode(errors="replace").decode().replace("\0", "\ufffd")
