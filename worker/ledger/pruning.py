"""Pruning: expired entries go in small batches, and only those that nothing needs any more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from worker.ledger.connect import Lines
from worker.rules.horizons import Feed

FROM_THE_FIRST = datetime(1, 1, 2, tzinfo=UTC)
_UNKNOWN = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Prunable:
    """An operation, and how far the wall clock lets its entries go."""

    id: int
    name: str
    newest: datetime
    audit_ttl: float | None
    horizon: datetime | None  # the latest any prune used: what expired before may be gone


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A feed that an operation's pruning waits for, and the moment at which its log time stands still."""

    operation: str
    group: str
    topic: str
    partition: int
    since: datetime
    why: str | None


@dataclass(frozen=True, slots=True)
class Behind:
    """How far the pruning of an operation has come: its latest horizon, and the expiry of its oldest entry."""

    operation: str
    horizon: datetime | None
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Expired entries, and the latest expiry among them: where the next batch begins."""

    ids: Sequence[Any]
    last: datetime


class Pruning:
    """Statements of a prune, on a connection of their own: no other work waits behind them."""

    def __init__(self, lines: Lines, queries: Mapping[str, str]) -> None:
        self._lines = lines
        self._queries = queries

    async def take(self, duty: str, operation: int, every: float, *, now: bool = False) -> bool:
        """Whether a duty is ours to do: it is due (or wanted now), and nobody else has taken it."""
        async with self._lines.take() as line:
            return bool(await line.fetch(self._queries["take_duty"], duty, operation, every, now))

    async def operations(self) -> list[Prunable]:
        """Every operation there is."""
        async with self._lines.take() as line:
            rows = await line.fetch(self._queries["prunable_operations"])
        return [Prunable(*row) for row in rows]

    async def held_back(self) -> list[HeldBack]:
        """What holds pruning back, longest first; without asking Kafka."""
        async with self._lines.take() as line:
            return [HeldBack(*row) for row in await line.fetch(self._queries["pruning_holds"])]

    async def behind(self) -> list[Behind]:
        """How far pruning has come, by operation."""
        async with self._lines.take() as line:
            return [Behind(*row) for row in await line.fetch(self._queries["pruning_behind"])]

    async def expired(
        self, operation: int, horizon: datetime, after: datetime = FROM_THE_FIRST, most: int = 1000
    ) -> Batch | None:
        """The next entries that may go, oldest first; none: that was all."""
        async with self._lines.take() as line:
            rows = await line.fetch(self._queries["expired_entries"], operation, horizon, after, most)
        return Batch(sorted(r["id"] for r in rows), rows[-1]["expires_at"]) if rows else None

    async def announce(self, operation: int, horizon: datetime, feeds: Sequence[Feed]) -> None:
        """Before the first entry goes: which ones may be gone, by time and by position.

        Whoever then meets a record at such a position without an entry does not run it. Without this a record behind
        one that was held for longer than the TTL is finished, pruned at once, and run again when offsets are rewound.
        """
        passed = [feed for feed in feeds if feed.watermark is not None]
        async with self._lines.take() as line, line.transaction() as tx:
            await tx.execute(self._queries["note_horizon"], operation, horizon)
            await tx.execute(
                self._queries["note_prunes"],
                operation,
                [feed.topic for feed in passed],
                [feed.partition for feed in passed],
                [_UNKNOWN if feed.topic_id is None else UUID(bytes=feed.topic_id) for feed in passed],
                [feed.watermark for feed in passed],
            )

    async def prune(self, ids: Sequence[Any], horizon: datetime, audit_ttl: float | None) -> int:
        """Delete those of the entries that are still expired and needed by nobody; how many went.

        A row that someone keeps locked is not waited for: the others of the batch would be locked meanwhile.
        """
        async with self._lines.take() as line, line.transaction() as tx:
            await tx.execute(self._queries["wait_briefly"])
            if audit_ttl is None:
                return len(await tx.fetch(self._queries["prune"], ids, horizon))
            gone = await tx.fetch(self._queries["prune_for_audit"], ids, horizon)
            kept = [r["id"] for r in gone], [r["fence"] for r in gone], [r["detail"] for r in gone]
            await tx.execute(self._queries["write_expired"], *kept, audit_ttl)
            return len(gone)
