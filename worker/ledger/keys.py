"""What the ledger knows about an entry, for people: read without a claim, a lock or a scan."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from worker.ledger.desk import Desk
from worker.rules.claims import Kind, State, Status
from worker.rules.results import ContentType

_MOST = 50
_TENANTS = 10_000


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation as it is stored: how its keys are computed says what is needed to find one."""

    number: int
    scope: str
    operation: str
    identity: str
    ttl: timedelta

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.operation}"

    @property
    def has_tenants(self) -> bool:
        return " tenant=" in self.identity

    @property
    def secret(self) -> str | None:
        """The digest of the secret its ids were made with; None where keys are not private."""
        _, found, digest = self.identity.rpartition(" secret=")
        return digest if found else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, with names instead of numbers."""

    id: str
    operation: Operation
    tenant: bytes | None
    key: bytes | None
    state: State
    kind: Kind
    fence: int
    attempts: int
    crashes: int
    held: int
    error: str | None
    status: Status | None
    content_type: ContentType | None
    code: str | None
    result_bytes: int | None
    due_at: datetime | None
    failed_at: datetime | None
    expires_at: datetime
    source: str | None
    fingerprint: bytes | None
    now: datetime

    @property
    def claimed_at(self) -> datetime:
        """About when the newest claim was made: no column keeps it, but every claim sets the expiry by the TTL."""
        return self.expires_at - self.operation.ttl


@dataclass(frozen=True, slots=True)
class Doubt:
    """The side of an entry in doubt."""

    fence: int
    since: datetime
    quiet_until: datetime
    quiet: bool
    due_at: datetime
    probes: int
    reported_at: datetime | None


@dataclass(frozen=True, slots=True)
class Claim:
    """Who has the newest claim of an entry."""

    fence: int
    session: int
    role: str | None
    host: str | None
    pid: int | None
    lease_left: float | None
    ended_at: datetime | None

    @property
    def alive(self) -> bool:
        return self.host is not None and self.ended_at is None

    def __str__(self) -> str:
        if self.host is None:
            return f"{self.session}, whose row is gone"
        who = f"{self.session} ({self.role} on {self.host}, pid {self.pid})"
        left = self.lease_left or 0.0
        if self.ended_at is not None:
            return f"{who} has ended"
        return f"{who} lives, {left:.1f} s of its lease left" if left >= 0 else f"{who} lapsed {-left:.1f} s ago"


@dataclass(frozen=True, slots=True)
class Story:
    """Everything about one id: of a pruned entry only what its history and the audit kept."""

    id: str
    entry: Entry | None
    doubt: Doubt | None
    claim: Claim | None
    parked: Sequence[asyncpg.Record]
    history: Sequence[asyncpg.Record]
    acts: Sequence[asyncpg.Record]

    @property
    def state(self) -> str | None:
        """The entry's state; `expired` for one whose pruning was kept for audit; None if nothing is known."""
        if self.entry is not None:
            return self.entry.state.name.lower()
        return "expired" if any(row["event"] == "expired" for row in self.history) else None


class Keys:
    """Looks entries up."""

    def __init__(self, desk: Desk) -> None:
        self._line = desk.line
        self._queries = desk.queries

    async def operations(self) -> dict[int, Operation]:
        """Every operation that was ever registered, by number."""
        rows = await self._line.fetch(self._queries["known_operations"])
        return {r["id"]: Operation(r["id"], r["scope"], r["operation"], r["identity"], r["ttl"]) for r in rows}

    async def tenants(self, operation: Operation) -> tuple[list[bytes], bool]:
        """Tenants of an operation, by its newest entries and its doubts; and whether those are all there are."""
        rows = await self._line.fetch(self._queries["some_tenants"], operation.number, _TENANTS)
        return [r["tenant"] for r in rows if r["tenant"] is not None], not rows or rows[0]["looked_at"] < _TENANTS

    async def entries(self, ids: Sequence[bytes]) -> list[Entry]:
        """The entries that exist, in the order of the ids."""
        rows = await self._line.fetch(self._queries["read_entries"], [UUID(id_) for id_ in sorted(set(ids))])
        operations = await self.operations() if rows else {}
        numbers = sorted({r["source_topic"] for r in rows if r["source_topic"] is not None})
        topics = {r["id"]: r["name"] for r in await self._line.fetch(self._queries["topic_names"], numbers)}
        found = {row["id"].bytes: _entry(row, operations, topics) for row in rows}
        return [found[id_] for id_ in ids if id_ in found]

    async def doubts(self, ids: Sequence[bytes]) -> dict[bytes, Doubt]:
        rows = await self._line.fetch(self._queries["read_doubts"], [UUID(id_) for id_ in ids])
        return {
            r["id"].bytes: Doubt(
                r["fence"], r["since"], r["quiet_until"], r["quiet"], r["due_at"], r["probes"], r["reported_at"]
            )
            for r in rows
        }

    async def claims(self, fences: Sequence[int]) -> dict[int, Claim]:
        """Who holds these fences; a fence without an answer is held by nobody."""
        rows = await self._line.fetch(self._queries["read_claims"], list(fences))
        return {row["fence"]: read_claim(row) for row in rows}

    async def stories(self, ids: Sequence[bytes]) -> list[Story]:
        """Everything about those of the ids of which anything is known."""
        entries = {UUID(entry.id).bytes: entry for entry in await self.entries(ids)}
        told = []
        for id_ in ids:
            story = await self._story(id_, entries.get(id_))
            if story.entry is not None or story.history or story.parked:
                told.append(story)
        return told

    async def result(self, entry: Entry) -> bytes | None:
        """The stored bytes of a completed entry."""
        rows = await self._line.fetch(self._queries["read_result"], entry.id)
        return rows[0]["result"] if rows else None

    async def _story(self, id_: bytes, entry: Entry | None) -> Story:
        parked = await self._line.fetch(self._queries["read_parked"], UUID(id_), _MOST)
        history = await self._line.fetch(self._queries["newest_history"], UUID(id_), _MOST)
        acts = await self._line.fetch(self._queries["read_audit"], subject(id_), _MOST)
        doubt = claim = None
        if entry is not None:
            doubt = (await self.doubts([id_])).get(id_)
            claim = (await self.claims([entry.fence])).get(entry.fence)
            if entry.state is not State.IN_PROGRESS and claim is not None and not claim.alive:
                claim = None
        return Story(str(UUID(id_)), entry, doubt, claim, parked, history, acts)


def read_claim(row: asyncpg.Record) -> Claim:
    return Claim(row["fence"], row["session"], row["role"], row["host"], row["pid"], row["lease_left"], row["ended_at"])


def subject(id_: bytes) -> str:
    """How the audit names an entry."""
    return f"entry {UUID(id_)}"


def _entry(row: asyncpg.Record, operations: dict[int, Operation], topics: dict[int, str]) -> Entry:
    number, topic = row["operation"], topics.get(row["source_topic"])
    status: Any = row["result_status"]
    return Entry(
        id=str(row["id"]),
        operation=operations.get(number) or Operation(number, "?", str(number), "", timedelta(0)),
        tenant=row["tenant"],
        key=row["key"],
        state=State(row["state"]),
        kind=Kind(row["kind"]),
        fence=row["fence"],
        attempts=row["attempts"],
        crashes=row["crashes"],
        held=row["held"],
        error=row["error"],
        status=None if status is None else Status(status),
        content_type=None if status is None else ContentType(row["content_type"] or 0),
        code=row["result_code"],
        result_bytes=row["result_bytes"],
        due_at=row["due_at"],
        failed_at=row["failed_at"],
        expires_at=row["expires_at"],
        source=None if topic is None else f"{topic}/{row['source_partition']}@{row['source_offset']}",
        fingerprint=row["fingerprint"],
        now=row["now"],
    )
