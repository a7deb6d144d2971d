"""Kafka in memory: records stand in partitions, and a consumer reads them from where it last committed."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from worker.rules.lanes import Lane
from worker.rules.record import Record

Position = tuple[str, int, int]


def position_of(record: Record) -> Position:
    """Where a record stands; it tells records of a box apart."""
    return (record.topic, record.partition, record.offset)


class Topics:
    """The partitions of a box and the group's committed offsets; they outlive every process."""

    def __init__(self, names: Iterable[str]) -> None:
        self.records: dict[tuple[str, int], list[Record]] = {(name, 0): [] for name in sorted(names)}
        self.committed: dict[tuple[str, int], int] = {}
        self.grown = asyncio.Event()

    def append(self, record: Record) -> Record:
        """Give the record its offset; it will be read in a moment."""
        log = self.records.setdefault((record.topic, record.partition), [])
        placed = Record(
            topic=record.topic,
            partition=record.partition,
            offset=len(log),
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        log.append(placed)
        self.grown.set()
        return placed

    async def read(self, topic: str, partition: int, offset: int) -> Record | None:
        """The record that stands exactly there, if any does."""
        log = self.records.get((topic, partition), [])
        return log[offset] if 0 <= offset < len(log) else None

    def uncommitted(self) -> list[Record]:
        """What the next process will read."""
        return [r for place, log in self.records.items() for r in log[self.committed.get(place, 0) :]]


class MemoryConsumer:
    """The one member of the group; it has every partition."""

    def __init__(self, topics: Topics, assigned: Callable[[Sequence[Lane]], None]) -> None:
        self._topics = topics
        self._assigned = assigned
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._closed = False
        self._assign()

    @property
    def lanes(self) -> list[Lane]:
        return list(self._lanes.values())

    async def poll(self, lanes: Sequence[Lane], *, most: int, wait_ms: int) -> list[tuple[Lane, Sequence[Record], int]]:
        """What stands in these lanes behind their positions; waits for more, with a limit only if a lane is missing."""
        fetched = self._fetch(lanes, most)
        if not fetched and not self._closed:
            self._topics.grown.clear()
            limit = wait_ms / 1000 if len(lanes) < len(self._lanes) else None
            with suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await self._topics.grown.wait()
            self._assign()
        return fetched

    async def commit(self, *, closing: bool = False) -> None:
        """Commit the watermarks."""
        self.commit_now()

    def commit_now(self) -> None:
        for place, lane in self._lanes.items():
            lane.committed = self._topics.committed[place] = lane.watermark.advance()

    async def measure(self, lanes: Sequence[Lane]) -> dict[Lane, int]:
        return {lane: len(self._topics.records[lane.topic, lane.partition]) for lane in lanes}

    def close(self) -> None:
        """Wake whoever polls."""
        self._closed = True
        self._topics.grown.set()

    def _fetch(self, lanes: Sequence[Lane], most: int) -> list[tuple[Lane, Sequence[Record], int]]:
        fetched: list[tuple[Lane, Sequence[Record], int]] = []
        for lane in lanes:
            records = self._topics.records[lane.topic, lane.partition][lane.position : lane.position + most]
            if records:
                fetched.append((lane, records, lane.position + len(records)))
        return fetched

    def _assign(self) -> None:
        new = [place for place in self._topics.records if place not in self._lanes]
        for topic, partition in new:
            start = self._topics.committed.get((topic, partition), 0)
            self._lanes[topic, partition] = Lane(topic, partition, start)
        if new:
            self._assigned([self._lanes[place] for place in new])
