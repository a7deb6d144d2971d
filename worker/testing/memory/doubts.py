"""Doubts in memory: taken for a probe, settled by evidence, reported in the end."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from worker.ledger.doubts import describe
from worker.rules.claims import State
from worker.rules.doubts import Doubt, Evidence, Happened, Ruled, Ruling
from worker.rules.record import Record
from worker.rules.results import Result
from worker.testing.memory.finals import store
from worker.testing.memory.tables import Doubt as DoubtRow
from worker.testing.memory.tables import Entry, Event, Tables


class MemoryDoubts:
    """The entries in doubt."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._evidence: dict[bytes, Result] = tables.evidence

    async def due(self, operations: Sequence[int]) -> list[int]:
        """Which of these operations have something to ask about."""
        await asyncio.sleep(0)
        due = {row.operation for row in self._tables.doubts.values() if self._is_due(row)}
        return sorted(due & set(operations))

    async def take(self, operation: int, most: int, again_in: float) -> list[Doubt]:
        """Doubts whose time has come, nobody else's for a while, with what is kept about them."""
        await asyncio.sleep(0)
        rows = [(i, r) for i, r in self._tables.doubts.items() if r.operation == operation and self._is_due(r)]
        rows = sorted(rows, key=lambda found: found[1].due_at)[:most]
        for _, row in rows:
            row.due_at = self._tables.clock() + again_in
        return [self._doubt(id_, row) for id_, row in rows]

    async def rule(self, evidence: Evidence) -> Ruled:
        """Let a word about an entry decide, if it may; what it did, and where the entry stands now."""
        await asyncio.sleep(0)
        tables = self._tables
        entry = tables.entries.get(evidence.id)
        if entry is None:
            return Ruled(Ruling.ABSENT)
        if evidence.fence not in (None, entry.fence):
            ruled = Ruled(Ruling.REFUSED, entry.state, entry.fence)
        elif evidence.result is not None:
            ruled = self._executed(entry, evidence.result)
        else:
            ruled = self._not_executed(entry, evidence)
        if ruled.ruling is Ruling.SETTLED:
            tables.leave_doubt([entry.id])
            if entry.operation in tables.terms:
                tables.keep(entry, tables.terms[entry.operation].ttl)
        self._remember(evidence, ruled)
        return ruled

    async def note(self, doubt: Doubt, said: str, *, again_in: float) -> None:
        """Record a probe that settled nothing; it is due again in so many seconds."""
        await asyncio.sleep(0)
        self._tables.tell(Event(doubt.id, "probe", doubt.fence, said, None))
        row = self._of(doubt)
        if row is not None:
            row.probes += 1
            row.due_at = self._tables.clock() + again_in

    async def put_off(self, doubt: Doubt, again_in: float) -> None:
        """Nobody was asked; due in so many seconds."""
        await asyncio.sleep(0)
        row = self._of(doubt)
        if row is not None:
            row.due_at = self._tables.clock() + again_in

    async def reported(self, doubt: Doubt, how: str) -> None:
        """The doubt's dead letter is acknowledged, or cannot be written any more: nobody is asked from now on."""
        await asyncio.sleep(0)
        row = self._of(doubt)
        if row is not None and row.reported_at is None:
            row.reported_at = self._tables.clock()
            self._tables.tell(Event(doubt.id, "reported", doubt.fence, how, None))

    async def history(self, id_: bytes) -> list[Happened]:
        """What happened to an entry besides its states, oldest first."""
        await asyncio.sleep(0)
        date = self._tables.clock.date
        return [Happened(date(e.at), e.event, e.fence, e.detail) for e in self._tables.history if e.id == id_]

    async def now(self) -> datetime:
        return self._tables.clock.date(self._tables.clock())

    def _is_due(self, row: DoubtRow) -> bool:
        return row.reported_at is None and row.due_at <= self._tables.clock()

    def _of(self, doubt: Doubt) -> DoubtRow | None:
        row = self._tables.doubts.get(doubt.id)
        return row if row is not None and row.fence == doubt.fence else None

    def _executed(self, entry: Entry, result: Result) -> Ruled:
        match entry.state:
            case State.IN_PROGRESS:
                return Ruled(Ruling.KEPT, entry.state, entry.fence)
            case State.COMPLETED:
                return Ruled(Ruling.COMPLETED, entry.state, entry.fence)
        store(entry, result)
        entry.due_at = None
        return Ruled(Ruling.SETTLED, entry.state, entry.fence)

    def _not_executed(self, entry: Entry, evidence: Evidence) -> Ruled:
        if entry.state is State.COMPLETED:
            return Ruled(Ruling.COMPLETED, entry.state, entry.fence)
        if entry.state is not State.UNKNOWN or evidence.fence is None:
            return Ruled(Ruling.REFUSED, entry.state, entry.fence)
        clock, row = self._tables.clock, self._tables.doubts[entry.id]
        asked_late = evidence.asked_at is not None and evidence.asked_at >= clock.date(row.quiet_until)
        if not asked_late and not evidence.forced:
            return Ruled(Ruling.EARLY, entry.state, entry.fence, row.quiet_until - clock())
        entry.state, entry.due_at = State.FAILED_RETRYABLE, clock()
        return Ruled(Ruling.SETTLED, entry.state, entry.fence)

    def _remember(self, evidence: Evidence, ruled: Ruled) -> None:
        result = evidence.result
        fence = ruled.fence if evidence.fence is None else evidence.fence
        if ruled.ruling is Ruling.KEPT and result is not None:
            self._evidence[evidence.id] = result
            self._tables.tell(Event(evidence.id, "evidence", fence, "", result.body))
            return
        body = None if result is None or ruled.ruling is Ruling.SETTLED else result.body
        self._tables.tell(Event(evidence.id, evidence.by, fence, describe(evidence, ruled), body))

    def _doubt(self, id_: bytes, row: DoubtRow) -> Doubt:
        tables, now = self._tables, self._tables.clock()
        entry = tables.entries[id_]
        number, partition, offset = entry.source
        topic = next((name for name, known in tables.topics.items() if known == number), None)
        return Doubt(
            id=id_,
            operation=row.operation,
            fence=row.fence,
            probes=row.probes,
            taken_at=tables.clock.date(now),
            age=now - row.since,
            quiet_in=row.quiet_until - now,
            fingerprint=entry.fingerprint,
            format=entry.format,
            attempts=entry.attempts,
            crashes=entry.crashes,
            key=entry.key,
            tenant=entry.tenant,
            topic=topic,
            partition=partition,
            offset=offset,
            parked=self._parked(id_, (topic, partition, offset)),
            evidence=self._evidence.get(id_),
        )

    def _parked(self, id_: bytes, source: tuple[str | None, int, int]) -> Record | None:
        kept = [(place[1:] != source, place[1:], row) for place, row in self._tables.parked.items() if place[0] == id_]
        return min(kept, key=lambda found: found[:2])[2].record if kept else None
