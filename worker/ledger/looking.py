"""Looking at entries without a session, a claim or a write: for those who tell beforehand what would happen."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from asyncpg.pgproto.pgproto import UUID

from worker.ledger.connect import Line
from worker.ledger.feeds import below
from worker.rules.claims import State
from worker.rules.entries import Row


class Looking:
    """What the ledger knows, read over one connection."""

    def __init__(self, line: Line, queries: Mapping[str, str]) -> None:
        self._line = line
        self._queries = queries

    async def look_at(self, ids: Sequence[bytes]) -> dict[bytes, Row]:
        """What the rows say now, without their results."""
        rows = await self._line.fetch(self._queries["look_at"], [UUID(id_) for id_ in ids])
        return {
            row[0].bytes: Row(
                row[0].bytes, State(row[1]), row[2], row[3], row[4], row[5], row[6], None, row[7], row[8], row[9]
            )
            for row in rows
        }

    async def operations(self) -> dict[str, int]:
        """Numbers of the operations that are known, by handler name."""
        rows = await self._line.fetch(self._queries["known_operations"])
        return {f"{row['scope']}/{row['operation']}": row["id"] for row in rows}

    async def forgotten(
        self, topic: str, operations: Collection[int], topic_id: bytes | None
    ) -> dict[int, dict[int, int]]:
        """Per partition and operation, the offset below which entries may be gone, by the feeds of any group."""
        id_ = None if topic_id is None else UUID(topic_id)
        return below(await self._line.fetch(self._queries["forgotten"], topic, sorted(operations), id_))

    async def horizon(self, operation: int) -> datetime | None:
        """Up to when entries of an operation may have been pruned; None: none ever was."""
        found: datetime | None = await self._line.fetchval(self._queries["read_horizon"], operation)
        return found
