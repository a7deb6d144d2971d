"""Feeds: which partitions a group reads, where each began, and how far it has come."""

from collections.abc import Mapping

from worker.ledger.connect import Lines
from worker.rules.lanes import Lane


class Feeds:
    """The feeds of consumer groups."""

    def __init__(self, lines: Lines, queries: Mapping[str, str]) -> None:
        self._lines = lines
        self._queries = queries

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

    async def sample(self, group: str, ends: Mapping[Lane, int]) -> None:
        """Store how far each lane has come; only what Kafka acknowledged counts."""
        rows = [(lane.topic, lane.partition, end, lane.committed) for lane, end in ends.items()]
        rows = [row for row in rows if row[3] is not None]
        if rows:
            topics, partitions, offsets, watermarks = zip(*rows, strict=True)
            async with self._lines.take() as line:
                await line.fetch(self._queries["write_sample"], group, topics, partitions, offsets, watermarks)

    async def watermarks(self, group: str, topic: str) -> dict[int, int]:
        """How far the group has come on each partition of a topic, as stored; empty if it never was sampled."""
        async with self._lines.take() as line:
            return {r[0]: r[1] for r in await line.fetch(self._queries["read_watermarks"], group, topic)}

    async def forgotten(self, topic: str, ttl: float) -> dict[int, int]:
        """Per partition, the offset below which everything was finished longer ago than `ttl`, by any group."""
        async with self._lines.take() as line:
            return {r[0]: r[1] for r in await line.fetch(self._queries["forgotten"], topic, ttl)}
