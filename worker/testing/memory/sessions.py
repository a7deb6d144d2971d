"""Sessions in memory: one lease keeps all claims of a process alive; others end it, once and for ever, and settle."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from worker.rules.claims import State, after_death
from worker.testing.memory.tables import SessionRow, Tables


class MemorySession:
    """A lease and the right to start work while it is safe. Nothing renews it unless `keep` runs."""

    def __init__(self, tables: Tables, *, lease: float, role: str, held: Callable[[], set[int]]) -> None:
        self.id = 0
        self.lease = lease
        self._tables = tables
        self._role = role
        self._held = held
        self._safe_until = 0.0
        self._uncovered: set[int] = set()
        self._checking = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether nobody has ended it."""
        row = self._tables.sessions.get(self.id)
        return row is not None and row.ended_at is None

    def safe(self) -> bool:
        """Whether a handler or effect may start: the last renewal is less than 2/3 lease ago."""
        return self._tables.clock() < self._safe_until

    def covers(self, fence: int) -> bool:
        """Whether a handler or effect of this claim may start: safe, and not settled with an earlier session."""
        return fence not in self._uncovered and self.safe()

    def beat(self) -> None:
        """The main loop moves; there is no thread that would have to know."""

    def check(self) -> None:
        """Renew now rather than later: something looks as if the session had ended."""
        self._checking.set()

    async def open(self) -> None:
        """Open a session."""
        now = self._tables.clock()
        self.id = len(self._tables.sessions) + 1
        self._tables.sessions[self.id] = SessionRow(self.id, self._role, self.lease, now + self.lease, now)
        self._safe_until = now + self.lease * 2 / 3

    async def renew(self) -> None:
        """Extend the lease; a session that was ended is replaced, and its unsettled claims are carried over."""
        tables, now = self._tables, self._tables.clock()
        row = tables.sessions[self.id]
        if row.ended_at is None:
            if row.lease_until < now:
                row.steady_since = now
            row.lease_until = now + self.lease
            self._safe_until = now + self.lease * 2 / 3
            return
        await self.open()
        self._uncovered = self._held()
        for fence, (session, ids) in tables.open_claims.items():
            if session == row.id:
                tables.open_claims[fence] = (self.id, ids)
                self._uncovered.discard(fence)

    async def keep(self) -> None:
        """Renew for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.lease / 3):
                    await self._checking.wait()
            self._checking.clear()
            await self.renew()

    async def close(self) -> None:
        """End the session; claims it leaves open are settled by others."""
        self._safe_until = 0.0
        row = self._tables.sessions[self.id]
        if row.ended_at is None:
            row.ended_at = self._tables.clock()


class MemorySettling:
    """Ends lapsed sessions and settles the claims of ended ones."""

    def __init__(self, tables: Tables, session: MemorySession, *, first_probe: float) -> None:
        self._tables = tables
        self._session = session
        self._first_probe = first_probe

    async def end_lapsed(self) -> list[int]:
        """End sessions whose lease has lapsed, if our own has been steady for a whole lease; gives their ids."""
        now = self._tables.clock()
        me = self._tables.sessions[self._session.id]
        if me.ended_at is not None or me.lease_until <= now or me.steady_since >= now - me.lease:
            return []
        lapsed = [s for s in self._tables.sessions.values() if s.ended_at is None and s.lease_until < now]
        for row in lapsed:
            row.ended_at = now
        return [row.id for row in lapsed]

    async def settle(self, most: int = 100) -> dict[State, int]:
        """Settle claims of ended sessions, oldest first; counts by new state."""
        tables = self._tables
        ended = {s.id for s in tables.sessions.values() if s.ended_at is not None}
        fences = sorted(fence for fence, (session, _) in tables.open_claims.items() if session in ended)
        counts: dict[State, int] = {}
        for fence in fences[:most]:
            for state in self._settle_one(fence):
                counts[state] = counts.get(state, 0) + 1
        return counts

    def _settle_one(self, fence: int) -> list[State]:
        tables = self._tables
        session, ids = tables.open_claims.pop(fence)
        entries = [entry for id_ in ids if (entry := tables.claimed(id_, fence)) is not None]
        for entry in entries:
            entry.state = after_death(entry.kind)
            entry.crashes += 1
            tables.note_failure(entry, "the worker died")
            if entry.state is State.UNKNOWN:
                tables.doubt(entry, lease=tables.sessions[session].lease, first_probe=self._first_probe)
            else:
                entry.due_at = tables.clock()
            tables.keep_as_declared(entry)
        tables.wake_parked(e.id for e in entries if e.state is not State.UNKNOWN)
        return [entry.state for entry in entries]
