"""Lanes: one partition for one assignment."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from worker.rules.watermark import Watermark


class Lane:
    """A partition from the moment it is given to us until it is taken away.

    After a rebalance a partition comes back as a new lane, also when it was kept: what an old lane still has in flight
    can then neither move the new one's watermark nor be mistaken for it.
    """

    __slots__ = (
        "bytes",
        "committed",
        "forgotten",
        "held",
        "held_at",
        "kept_back",
        "partition",
        "position",
        "revoked",
        "seen_below",
        "topic",
        "topic_id",
        "unfinished",
        "watched",
        "watermark",
    )

    def __init__(self, topic: str, partition: int, position: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position = position
        self.watermark: Watermark[Any] = Watermark(position)
        self.unfinished = 0
        self.bytes = 0
        self.kept_back = 0  # records that wait without a claim: for a circuit to close, for an operator
        self.revoked = False
        self.held: str | None = None  # why the partition is not read
        self.held_at = position  # and where it stood
        self.topic_id: bytes | None = None  # of the very log that is read, where the broker tells
        self.committed: int | None = None  # what Kafka acknowledged last
        self.forgotten: dict[int, int] = {}  # by operation: below this offset entries may be gone
        self.seen_below = 0  # the highest of these
        self.watched: dict[int, int] = {}  # timestamps of the few records whose delay is measured, by offset

    def receive(self, items: Sequence[Any], position: int) -> None:
        """Take what one fetch delivered, with the position read in the same step."""
        self.watermark.receive(items, position)
        self.unfinished += len(items)
        self.bytes += sum([item.size for item in items])
        self.position = position

    def remember(self, below: dict[int, int]) -> None:
        """By operation, the offset below which everything was finished and its entry may be gone."""
        self.forgotten = below
        self.seen_below = max(below.values(), default=0)

    def may_be_forgotten(self, offset: int, operation: int) -> bool:
        return offset < self.forgotten.get(operation, 0)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class KnownPlace:
    """What is stored about a partition that a group reads."""

    watermark: int | None  # the highest ever sampled
    topic_id: bytes | None
    go_on_at: int | None  # where an operator lets it go on


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a lane had come: all below the watermark is finished and acknowledged, and its log ended there."""

    lane: Lane
    end: int
    watermark: int


class Forgotten(Protocol):
    """Who knows what was finished how long ago."""

    async def forgotten(
        self, topic: str, operations: Collection[int], topic_id: bytes | None
    ) -> dict[int, dict[int, int]]: ...


async def remember_forgotten(feeds: Forgotten, topic: str, operations: Collection[int], lanes: Iterable[Lane]) -> None:
    """Tell the lanes of a topic below which offsets entries of these operations may have been pruned."""
    of_topic = [lane for lane in lanes if lane.topic == topic]
    if of_topic:
        found = await feeds.forgotten(topic, operations, of_topic[0].topic_id)
        for lane in of_topic:
            lane.remember(found.get(lane.partition, {}))
