"""What is published: results and dead letters."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to publish: a result or a dead letter."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None = None


class TooLarge(Exception):
    """The topic's limit refuses the record as it is; no repetition helps."""
