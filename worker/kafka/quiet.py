"""Keeps the Kafka client's log readable: it can write thousands of equal lines a second while a broker is away."""

import logging
import time
from collections.abc import Callable

LOGGERS = (
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.consumer",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
)
_REMEMBERED = 1000


class RateLimit(logging.Filter):
    """Lets a kind of line through a few times per period, then counts, and says so with the next one it lets through.

    Lines are of one kind when they come from the same statement: their values may differ.
    """

    def __init__(self, *, lines: int = 5, period: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._lines = lines
        self._period = period
        self._clock = clock
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, record.lineno, str(record.msg))
        now = self._clock()
        since, count = self._seen.get(kind, (now, 0))
        if now - since >= self._period:
            hidden = count - self._lines
            since, count = now, 0
            if hidden > 0:
                record.msg = f"{record.getMessage()} ({hidden} more like this were not shown)"
                record.args = ()
        if len(self._seen) >= _REMEMBERED and kind not in self._seen:
            self._seen.clear()
        self._seen[kind] = (since, count + 1)
        return count < self._lines


def quieten() -> None:
    """Put a limit on each of the client's loggers; calling it again changes nothing."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(present, RateLimit) for present in logger.filters):
            logger.addFilter(RateLimit())
