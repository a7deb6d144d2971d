"""What operators order: handlers and topics to pause, records to skip."""

from dataclasses import dataclass
from typing import Literal

Position = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class Skip:
    """One record becomes a dead letter; or, with `move`, a held partition is read on from this offset."""

    topic: str
    partition: int
    offset: int
    reason: str
    move: bool = False

    @property
    def position(self) -> Position:
        return self.topic, self.partition, self.offset

    def is_over(self, committed: int) -> bool:
        """Whether what the group has committed says that it is done."""
        return committed >= self.offset if self.move else committed > self.offset

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Pause:
    """Records of a handler (`scope/operation`) or of a topic are held without a claim."""

    what: Literal["handler", "topic"]
    name: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.name}"
