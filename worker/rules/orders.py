"""What operators order: handlers and topics to pause, records to skip."""

from dataclasses import dataclass
from typing import Literal

Position = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Records of a handler (`scope/operation`) or of a topic are held without a claim."""

    what: Literal["handler", "topic"]
    name: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.name}"
