"""Feeds: which partitions a group reads for which operations, where each began, and how far it has come."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from worker.ledger.connect import Lines
from worker.rules.horizons import Feed
from worker.rules.lanes import KnownPlace, Lane, Progress


class Feeds:
    """The feeds of consumer groups."""

    def __init__(self, lines: Lines, queries: Mapping[str, str]) -> None:
        self._lines = lines
        self._queries = queries

    async def register(self, group: str, topic: str, partitions: Collection[int], operations: Collection[int]) -> None:
        """These partitions are read for these operations, or will be: none of their entries is pruned before that."""
        await self._fetch("register_feeds", group, topic, sorted(partitions), sorted(operations))

    async def starts(self, group: str, topic: str, found: Mapping[int, int]) -> dict[int, int]:
        """Where each partition of a group's topic began: as found now, if nobody has decided before.

        A partition that appeared after the decision is missing from the answer: it begins at its beginning.
        """
        partitions = sorted(found)
        async with self._lines.take() as line:
            await line.fetch(
                self._queries["write_feeds"], group, topic, partitions, [found[partition] for partition in partitions]
            )
            return {r[0]: r[1] for r in await line.fetch(self._queries["read_feeds"], group, topic)}

    async def known(self, group: str, topic: str) -> dict[int, KnownPlace]:
        """What is stored about each partition of a group's topic."""
        rows = await self._fetch("known_places", group, topic)
        return {r["partition"]: KnownPlace(r["watermark"], _bytes(r["topic_id"]), r["go_on_at"]) for r in rows}

    async def place(self, group: str, topic: str, lanes: Sequence[Lane], followed: Mapping[int, int]) -> None:
        """Note where lanes of a topic are read or why they are held, and which decisions of operators are over."""
        id_ = next((UUID(bytes=lane.topic_id) for lane in lanes if lane.topic_id is not None), None)
        await self._fetch(
            "place_feeds",
            group,
            topic,
            id_,
            [lane.partition for lane in lanes],
            [lane.held for lane in lanes],
            [lane.held_at if lane.held is not None else None for lane in lanes],
            [followed.get(lane.partition) for lane in lanes],
        )

    async def decided(self, group: str) -> set[tuple[str, int]]:
        """Held partitions of a group that an operator lets go on."""
        return {(r[0], r[1]) for r in await self._fetch("decided_places", group)}

    async def moment(self) -> datetime:
        """The database's clock: to be read before Kafka is asked where logs end."""
        (row,) = await self._fetch("read_moment")
        moment: datetime = row[0]
        return moment

    async def sample(self, group: str, moment: datetime, progress: Sequence[Progress]) -> None:
        """Store how far lanes had come at a moment; only what Kafka acknowledged counts."""
        if not progress:
            return
        topics, partitions = [p.lane.topic for p in progress], [p.lane.partition for p in progress]
        ends, watermarks = [p.end for p in progress], [p.watermark for p in progress]
        async with self._lines.take() as line:
            await line.fetch(self._queries["write_sample"], group, moment, topics, partitions, ends, watermarks)
            await line.fetch(self._queries["revive_feeds"], group, topics, partitions)

    async def forgotten(
        self, topic: str, operations: Collection[int], topic_id: bytes | None
    ) -> dict[int, dict[int, int]]:
        """Per partition and operation, the offset below which entries may be gone, by the feeds of any group."""
        id_ = None if topic_id is None else UUID(bytes=topic_id)
        return below(await self._fetch("forgotten", topic, sorted(operations), id_))

    async def standing(self, operation: int | None = None) -> list[Feed]:
        """Every feed, of one operation or of all, with its log time."""
        return [read_feed(row) for row in await self._fetch("standing_feeds", operation)]

    async def _fetch(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self._lines.take() as line:
            return await line.fetch(self._queries[name], *arguments)


def below(rows: Iterable[asyncpg.Record]) -> dict[int, dict[int, int]]:
    """Rows about what may be forgotten, by partition and operation."""
    found: dict[int, dict[int, int]] = {}
    for row in rows:
        of_partition = found.setdefault(row["partition"], {})
        of_partition[row["operation"]] = max(row["below"], of_partition.get(row["operation"], 0))
    return found


def read_feed(row: asyncpg.Record) -> Feed:
    return Feed(
        group=row["consumer_group"],
        topic=row["topic"],
        partition=row["partition"],
        operations=tuple(row["operations"]),
        topic_id=_bytes(row["topic_id"]),
        registered_at=row["registered_at"],
        log_time=row["log_time"],
        sampled_at=row["sampled_at"],
        sample_age=row["sample_age"],
        watermark=row["watermark"],
        end=row["end_offset"],
        held_since=row["held_since"],
        held_why=row["held_why"],
        held_at=row["held_at"],
        go_on_at=row["go_on_at"],
        retired_at=row["retired_at"],
    )


def _bytes(id_: Any) -> bytes | None:
    return None if id_ is None else bytes(id_.bytes)
