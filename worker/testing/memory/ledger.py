"""The ledger of one simulated process, with the parts and methods of the one on Postgres."""

from collections.abc import Mapping, Sequence

from worker.engine.ports import Ledger
from worker.ledger.fences import Fences
from worker.rules.handlers import Handler
from worker.rules.writes import Released
from worker.testing.memory.claims import MemoryClaims
from worker.testing.memory.database import MemoryDatabase
from worker.testing.memory.doubts import MemoryDoubts
from worker.testing.memory.finals import MemoryFinals
from worker.testing.memory.parking import MemoryParkingLot
from worker.testing.memory.sessions import MemorySession, MemorySettling
from worker.testing.memory.tables import Tables, Terms
from worker.testing.memory.transactions import MemoryTransactions


class MemoryLedger:
    """What one process may do with the tables; give several the same tables to simulate several processes."""

    def __init__(
        self,
        tables: Tables,
        *,
        lease: float = 15.0,
        crash_cap: int = 3,
        first_probe: float = 10.0,
        database: MemoryDatabase | None = None,
        role: str = "run",
    ) -> None:
        self.tables = tables
        self.database = MemoryDatabase() if database is None else database
        self.fences = Fences(tables.clock)
        self.session = MemorySession(tables, lease=lease, role=role, held=self.fences.held)
        self.claims = MemoryClaims(tables, self.session, self.fences, crash_cap=crash_cap)
        self.finals = MemoryFinals(tables, self.fences, lease=lease, first_probe=first_probe)
        self.parking = MemoryParkingLot(tables)
        self.doubts = MemoryDoubts(tables)
        self.settling = MemorySettling(tables, self.session, first_probe=first_probe)
        self.transactions = MemoryTransactions(tables, self.fences, self.database)

    @property
    def parts(self) -> Ledger:
        """The parts the engine works with."""
        return Ledger(self.session, self.claims, self.finals, self.parking, self.transactions)

    async def open(self) -> None:
        await self.session.open()

    async def close(self) -> None:
        await self.finals.tidy()
        await self.session.close()

    async def register(
        self, handlers: Sequence[Handler], *, group: str, identities: Mapping[str, str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Numbers of operations and of topics. A changed identity is not refused here: nothing outlives the test."""
        tables = self.tables
        for handler in handlers:
            number = tables.operations.setdefault(handler.name, len(tables.operations) + 1)
            quiet = (handler.timeout + handler.effect_horizon).total_seconds()
            tables.terms[number] = Terms(handler.scope.lifetime.total_seconds(), quiet)
            for topic in handler.topics:
                tables.topics.setdefault(topic, len(tables.topics) + 1)
        return dict(tables.operations), dict(tables.topics)

    async def release_strays(self) -> int:
        """Release claims whose answer was lost, and that nobody in this process runs."""
        mine = {fence: ids for fence, (session, ids) in self.tables.open_claims.items() if session == self.session.id}
        strays = self.fences.strays(mine)
        for fence in strays:
            await self.finals.release([Released(id_, fence) for id_ in mine[fence]])
            self.tables.open_claims.pop(fence, None)
        self.fences.lost.difference_update(strays)
        return len(strays)
