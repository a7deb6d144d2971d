"""The store in memory, under the same tests as Postgres."""

from collections.abc import Sequence
from typing import Any

from tests.conformance.stores import Seen, SeenDoubt, Store
from worker.rules.context import Transaction
from worker.rules.writes import Place
from worker.testing import MemoryDatabase, MemoryLedger, Tables


class InMemory(Store):
    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables()
        self.database = MemoryDatabase()

    async def open(self, options: dict[str, Any]) -> MemoryLedger:
        ledger = MemoryLedger(self.tables, database=self.database, **options)
        await ledger.open()
        return ledger

    async def close(self) -> None: ...

    async def shift(self, seconds: float) -> None:
        self.tables.clock.advance(seconds)

    async def renew(self, ledger: Any) -> None:
        await ledger.session.renew()

    async def find(self, id_: bytes) -> Seen | None:
        entry, now = self.tables.entries.get(id_), self.tables.clock()
        if entry is None:
            return None
        return Seen(
            state=entry.state,
            kind=entry.kind,
            fence=entry.fence,
            attempts=entry.attempts,
            crashes=entry.crashes,
            held=entry.held,
            fingerprint=entry.fingerprint,
            key=entry.key,
            tenant=entry.tenant,
            result=entry.result,
            due_in=None if entry.due_at is None else entry.due_at - now,
            expires_in=entry.expires_at - now,
            failed=entry.failed_at is not None,
            error=entry.error,
        )

    async def doubts(self) -> dict[bytes, SeenDoubt]:
        now = self.tables.clock()
        return {
            i: SeenDoubt(d.fence, d.quiet_until - now, d.due_at - now, d.probes, d.reported_at is not None)
            for i, d in self.tables.doubts.items()
        }

    async def parked(self) -> dict[Place, tuple[str, float | None]]:
        now = self.tables.clock()
        rows = self.tables.parked.items()
        return {place: (row.reason, None if row.due_at is None else row.due_at - now) for place, row in rows}

    async def history(self) -> list[tuple[bytes, str, int | None, bytes | None]]:
        return [(event.id, event.event, event.fence, event.body) for event in self.tables.history]

    async def open_claims(self) -> dict[int, int]:
        return {fence: session for fence, (session, _) in self.tables.open_claims.items()}

    async def end_session(self, ledger: Any) -> None:
        self.tables.sessions[ledger.session.id].ended_at = self.tables.clock()

    def lose_answers(self, ledger: Any, statements: Sequence[str]) -> None:
        ledger.claims.answers_to_lose = len(statements)

    async def write(self, transaction: Transaction, what: str) -> None:
        await transaction.execute("INSERT INTO written VALUES ($1)", what)

    async def written(self) -> list[str]:
        return [statement.arguments[0] for statement in self.database.committed]
