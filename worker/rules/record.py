"""What Kafka delivers, as the rules see it."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Record:
    """A record: topic, partition, offset, timestamp, headers, key bytes, value bytes.

    The consumer hands aiokafka's own records through without copying them: they carry the same attributes.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int = 0
    timestamp_type: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = field(default=())
