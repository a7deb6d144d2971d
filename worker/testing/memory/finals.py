"""Final writes in memory: what became of a claim. Each names the fence and the state it leaves."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from worker.ledger.fences import Fences
from worker.rules.claims import State
from worker.rules.results import Result
from worker.rules.writes import Completion, Doubted, Failed, Released
from worker.testing.memory.tables import Entry, Event, Tables, text


class MemoryFinals:
    """The final writes of one process; each gives back the ids that someone else had decided first."""

    def __init__(self, tables: Tables, fences: Fences, *, lease: float, first_probe: float) -> None:
        self._tables = tables
        self._fences = fences
        self._lease = lease
        self._first_probe = first_probe

    async def complete(self, done: Sequence[Completion]) -> set[bytes]:
        """Store the results of claims we still hold; hand the ids that come back to `complete_late`."""
        stored = []
        for one in done:
            entry = self._tables.entries.get(one.id)
            if entry is None or entry.fence != one.fence:
                continue
            if entry.state is State.IN_PROGRESS:
                store(entry, one.result)
            if entry.state is State.COMPLETED and entry.result == as_stored(one.result):
                # Also by a try whose answer was lost.
                stored.append(one)
        await self._answered(stored)
        return {d.id for d in done} - {d.id for d in stored}

    async def complete_late(self, done: Sequence[Completion]) -> set[bytes]:
        """Store results of claims that were settled meanwhile; the ids that come back must be judged by their rows.

        A result refused by fence is kept in the entry's history; one that the row holds already was stored before.
        """
        tables = self._tables
        stored, refused = set(), set()
        for one in done:
            entry = tables.entries.get(one.id)
            if entry is None or entry.fence != one.fence:
                self._refuse(one, "result_refused")
                refused.add(one.id)
            elif entry.state is not State.COMPLETED:
                store(entry, one.result)
                entry.due_at = None
                tables.keep(entry, one.ttl)
                stored.add(one.id)
            elif entry.result != as_stored(one.result):
                self._refuse(one, "result_differs")
                refused.add(one.id)
        self._tables.leave_doubt(stored)
        await self._answered(done)
        return refused

    async def fail(self, failed: Sequence[Failed]) -> set[bytes]:
        """Note that nothing was executed; also of the very claim in doubt."""
        changed = set()
        for one in failed:
            entry = self._tables.entries.get(one.id)
            if entry is None or entry.fence != one.fence or entry.state not in (State.IN_PROGRESS, State.UNKNOWN):
                continue
            # An entry that was in doubt is due now, and its attempt does not count.
            running = entry.state is State.IN_PROGRESS
            entry.state = State.FAILED_RETRYABLE
            entry.attempts += int(running)
            entry.due_at = self._tables.clock() + (one.delay if running else 0.0)
            self._tables.note_failure(entry, one.error)
            self._tables.keep_as_declared(entry)
            changed.add(one.id)
        self._tables.leave_doubt(changed)
        await self._answered(failed)
        return {c.id for c in failed} - changed

    async def release(self, released: Sequence[Released]) -> set[bytes]:
        """Give back claims whose handler never started; counts nothing, due at once."""
        changed = set()
        for one in released:
            entry = self._tables.entries.get(one.id)
            if entry is not None and entry.fence == one.fence and entry.state in (State.IN_PROGRESS, State.UNKNOWN):
                entry.state, entry.due_at = State.FAILED_RETRYABLE, self._tables.clock()
                self._tables.keep_as_declared(entry)
                changed.add(one.id)
        self._tables.leave_doubt(changed)
        await self._answered(released)
        return {c.id for c in released} - changed

    async def doubt(self, doubted: Sequence[Doubted]) -> set[bytes]:
        """Note that nobody knows whether the effect happened."""
        changed = set()
        for one in doubted:
            entry = self._tables.claimed(one.id, one.fence)
            if entry is not None:
                entry.state = State.UNKNOWN
                self._tables.note_failure(entry, one.error)
                self._tables.doubt(entry, lease=self._lease, first_probe=self._first_probe)
                changed.add(one.id)
        await self._answered(doubted)
        return {c.id for c in doubted} - changed

    async def tidy(self) -> None:
        """Forget the open claims of finished batches."""
        for fence in self._fences.finished():
            self._tables.open_claims.pop(fence, None)

    def _refuse(self, one: Completion, event: str) -> None:
        self._tables.note(Event(one.id, event, one.fence, one.result.status.name, one.result.body))

    async def _answered(self, claims: Sequence[Completion | Failed | Released | Doubted]) -> None:
        await asyncio.sleep(0)
        self._fences.closed(c.fence for c in claims)


def store(entry: Entry, result: Result) -> None:
    """Complete an entry."""
    entry.state = State.COMPLETED
    entry.result = as_stored(result)


def as_stored(result: Result) -> Result:
    """The result as a row would give it back."""
    return result if result.code is None else replace(result, code=text(result.code))
