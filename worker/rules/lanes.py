"""Lanes: one partition for one assignment."""

from collections.abc import Collection, Iterable, Sequence
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
        "kept_back",
        "partition",
        "position",
        "revoked",
        "seen_below",
        "topic",
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
        self.committed: int | None = None  # what Kafka acknowledged last
        self.forgotten: dict[float, int] = {}  # by ttl: below this offset all was finished longer ago than that
        self.seen_below = 0  # the highest of these
        self.watched: dict[int, int] = {}  # timestamps of the few records whose delay is measured, by offset

    def receive(self, items: Sequence[Any], position: int) -> None:
        """Take what one fetch delivered, with the position read in the same step."""
        self.watermark.receive(items, position)
        self.unfinished += len(items)
        self.bytes += sum([item.size for item in items])
        self.position = position

    def remember(self, ttl: float, offset: int) -> None:
        """Everything below this offset was finished longer ago than the ttl: its entries may be forgotten."""
        self.forgotten[ttl] = offset
        self.seen_below = max(self.forgotten.values())

    def may_be_forgotten(self, offset: int, ttl: float) -> bool:
        return offset < self.forgotten.get(ttl, 0)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Forgotten(Protocol):
    """Who knows what was finished how long ago."""

    async def forgotten(self, topic: str, ttl: float) -> dict[int, int]: ...


async def remember_forgotten(feeds: Forgotten, topic: str, ttls: Collection[float], lanes: Iterable[Lane]) -> None:
    """Tell the lanes of a topic below which offset entries may have been pruned."""
    of_topic = [lane for lane in lanes if lane.topic == topic]
    for ttl in ttls:
        offsets = await feeds.forgotten(topic, ttl)
        for lane in of_topic:
            if lane.partition in offsets:
                lane.remember(ttl, offsets[lane.partition])
