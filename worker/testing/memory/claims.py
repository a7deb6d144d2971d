"""Claiming in memory: absent -> in_progress, failed_retryable -> in_progress, and retaking what was lost."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from worker.errors import ServiceUnavailable
from worker.ledger.fences import Fences
from worker.rules.claims import State
from worker.rules.entries import Claimable, Row, Won
from worker.rules.writes import Claimed
from worker.testing.memory.sessions import MemorySession
from worker.testing.memory.tables import Entry, Tables

_PAUSE = 0.1


class MemoryClaims:
    """Claims and look-ups of one process."""

    def __init__(self, tables: Tables, session: MemorySession, fences: Fences, *, crash_cap: int) -> None:
        self._tables = tables
        self._session = session
        self._fences = fences
        self._crash_cap = crash_cap
        self.answers_to_lose = 0  # how many of the next claim statements commit without an answer

    async def claim(self, offers: Sequence[Claimable], *, look_first: bool = False) -> Claimed:
        """Claim every absent key and look up the others; an offer whose answer was lost is made again."""
        offers = sorted(offers, key=_by_id)
        while True:
            await asyncio.sleep(0)
            try:
                return self._claim_once(offers, look_first)
            except ServiceUnavailable:
                await asyncio.sleep(_PAUSE)

    async def claim_again(self, offers: Sequence[Claimable]) -> dict[bytes, Won]:
        """Claim entries that failed provably and are due; those missing from the answer must be looked up again."""
        await asyncio.sleep(0)
        try:
            won = self._under_fence(
                [o.id for o in offers], lambda fence: self._again(sorted(offers, key=_by_id), fence)
            )
        except ServiceUnavailable:
            return {}
        if len(won) < len(offers):
            self._fences.discard()
            self._session.check()
        return won

    async def look_up(self, ids: Sequence[bytes]) -> dict[bytes, Row]:
        """What the rows say now."""
        await asyncio.sleep(0)
        return self._look_up(ids)

    def _claim_once(self, offers: Sequence[Claimable], look_first: bool) -> Claimed:
        rows = self._look_up([o.id for o in offers]) if look_first else {}
        asked = [o for o in offers if o.id not in rows]
        won = self._under_fence([o.id for o in asked], lambda fence: self._insert(asked, fence)) if asked else {}
        fence = max((w.fence for w in won.values()), default=0)
        if len(won) == len(offers):
            return Claimed(fence)
        rows.update(self._look_up([o.id for o in asked if o.id not in won]))
        if not rows:
            self._session.check()
        answer = Claimed(fence, rows, all_won=False, plain=set(won))
        mine = {o.id: rows[o.id].fence for o in offers if o.id in rows and self._lost(rows[o.id], o)}
        if mine:
            answer.won.update(self._under_fence(mine, lambda fence: self._retake(mine, fence)))
            for id_ in answer.won:
                del rows[id_]
        return answer

    def _lost(self, row: Row, offer: Claimable) -> bool:
        """Whether the row is a claim of ours that nobody runs, made for this very payload."""
        mine = row.state is State.IN_PROGRESS and row.fence in self._fences.lost
        return mine and (row.fingerprint, row.format) == (offer.fingerprint, offer.origin.format)

    def _under_fence(self, ids: Iterable[bytes], write: Callable[[int], dict[bytes, Won]]) -> dict[bytes, Won]:
        """One statement under a fresh fence; in an ended session it does nothing."""
        fences, tables = self._fences, self._tables
        if fences.empty:
            fences.refill(tables.draw_fences(), tables.clock())
        fence = fences.take()
        won: dict[bytes, Won] = {}
        if self._session.alive:
            tables.open_claims[fence] = (self._session.id, tuple(ids))
            won = write(fence)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            fences.lost.add(fence)
            raise ServiceUnavailable("memory", "the answer was lost")
        fences.opened(fence, len(won))
        return won

    def _insert(self, offers: Sequence[Claimable], fence: int) -> dict[bytes, Won]:
        entries, now = self._tables.entries, self._tables.clock()
        absent = [o for o in offers if o.id not in entries]
        for offer in absent:
            entries[offer.id] = Entry(
                id=offer.id,
                operation=offer.origin.plan.operation,
                kind=offer.origin.plan.kind,
                fence=fence,
                expires_at=now + offer.origin.plan.ttl,
                fingerprint=offer.fingerprint,
                format=offer.origin.format,
                tenant=offer.stored_tenant,
                key=offer.stored_key,
                source=(offer.origin.topic_number, offer.origin.partition, offer.offset),
            )
        return {o.id: Won(fence) for o in absent}

    def _again(self, offers: Sequence[Claimable], fence: int) -> dict[bytes, Won]:
        now = self._tables.clock()
        won = {}
        for offer in offers:
            entry = self._tables.entries.get(offer.id)
            if entry is None or not self._may_claim_again(entry, offer, fence):
                continue
            entry.state, entry.fence, entry.kind = State.IN_PROGRESS, fence, offer.origin.plan.kind
            entry.due_at, entry.expires_at = None, now + offer.origin.plan.ttl
            won[entry.id] = self._won(entry)
        return won

    def _may_claim_again(self, entry: Entry, offer: Claimable, fence: int) -> bool:
        return (
            entry.state is State.FAILED_RETRYABLE
            and entry.fingerprint == offer.fingerprint
            and entry.fence < fence
            and entry.due_at is not None
            and entry.due_at <= self._tables.clock()
            and entry.attempts < offer.origin.plan.attempts_cap
            and entry.crashes < self._crash_cap
        )

    def _retake(self, lost: dict[bytes, int], fence: int) -> dict[bytes, Won]:
        won = {}
        for id_, lost_fence in lost.items():
            entry = self._tables.claimed(id_, lost_fence)
            if entry is not None:
                entry.fence = fence
                won[id_] = self._won(entry)
        return won

    def _won(self, entry: Entry) -> Won:
        failed_at = None if entry.failed_at is None else self._tables.clock.date(entry.failed_at)
        return Won(entry.fence, entry.attempts, entry.crashes, failed_at)

    def _look_up(self, ids: Sequence[bytes]) -> dict[bytes, Row]:
        entries = self._tables.entries
        return {id_: self._tables.row(entries[id_]) for id_ in ids if id_ in entries}


def _by_id(offer: Claimable) -> bytes:
    return offer.id
