"""Transactional handlers in memory: what they executed is applied together with the completion, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable

from worker.ledger.fences import Fences
from worker.rules.context import Transaction
from worker.rules.results import Result
from worker.testing.memory.database import MemoryDatabase, MemoryTransaction
from worker.testing.memory.finals import store
from worker.testing.memory.tables import Tables


class MemoryTransactions:
    """Runs handlers inside transactions."""

    def __init__(self, tables: Tables, fences: Fences, database: MemoryDatabase) -> None:
        self._tables = tables
        self._fences = fences
        self._database = database

    async def run(self, id_: bytes, fence: int, body: Callable[[Transaction], Awaitable[Result]]) -> Result | None:
        """Run the body and apply what it did with the completion; None means someone else decided first."""
        transaction = MemoryTransaction(self._database)
        await asyncio.sleep(0)
        result = await body(transaction)
        entry = self._tables.claimed(id_, fence)
        if entry is not None:
            store(entry, result)
            self._database.committed.extend(transaction.statements)
        self._fences.closed((fence,))
        await asyncio.sleep(0)
        return None if entry is None else result
