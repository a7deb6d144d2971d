"""Lanes: one partition for one assignment."""

from collections.abc import Sequence
from typing import Any

from worker.rules.watermark import Watermark


class Lane:
    """A partition from the moment it is given to us until it is taken away.

    After a rebalance a partition comes back as a new lane, also when it was kept: what an old lane still has in flight
    can then neither move the new one's watermark nor be mistaken for it.
    """

    __slots__ = ("bytes", "committed", "held", "partition", "position", "revoked", "topic", "unfinished", "watermark")

    def __init__(self, topic: str, partition: int, position: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position = position
        self.watermark: Watermark[Any] = Watermark(position)
        self.unfinished = 0
        self.bytes = 0
        self.revoked = False
        self.held: str | None = None  # why the partition is not read
        self.committed: int | None = None  # what Kafka acknowledged last

    def receive(self, items: Sequence[Any], position: int) -> None:
        """Take what one fetch delivered, with the position read in the same step."""
        self.watermark.receive(items, position)
        self.unfinished += len(items)
        self.bytes += sum([item.size for item in items])
        self.position = position

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
