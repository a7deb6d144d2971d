"""Asking Kafka whether it is there: the client itself raises nothing while a broker is away, and looks idle instead."""

import asyncio
import time
from collections.abc import Sequence

from worker.errors import ServiceUnavailable
from worker.kafka.consumer import Consumer
from worker.rules.lanes import Lane

_WITHIN = 2.0


class KafkaProbe:
    """Asks where the logs of our lanes end; so it also knows how far behind they are."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._ends: dict[Lane, int] = {}
        self._behind: dict[Lane, float] = {}  # since when there is a lag of which nothing was read

    async def ask(self) -> None:
        """Return when Kafka answered; raises ServiceUnavailable, or takes longer than anyone should wait."""
        lanes = [lane for lane in self._consumer.lanes if not lane.revoked]
        self._ends = {lane: end for lane, end in self._ends.items() if lane in lanes}
        self._behind = {lane: since for lane, since in self._behind.items() if lane in lanes}
        if not lanes:
            await self._consumer.refresh()
            return
        try:
            await self._read_ends(lanes)
        except (ServiceUnavailable, TimeoutError):
            # One partition without a leader holds up the answer for all: ask one by one, and be content with any.
            tried = await asyncio.gather(*(self._read_ends([lane]) for lane in lanes), return_exceptions=True)
            if all(isinstance(answer, BaseException) for answer in tried):
                raise

    def lag(self, lane: Lane) -> int:
        """Offsets between what is committed and the end of the log, as far as it is known."""
        end = max(self._ends.get(lane, 0), self._consumer.seen_end(lane))
        done = lane.position if lane.committed is None else lane.committed
        return max(0, end - done)

    def lag_seconds(self, lane: Lane) -> float:
        """How old the oldest unfinished record is; if none was read, how long there has been a lag."""
        head = next((item for item in lane.watermark if not item.finished), None)
        if head is not None:
            return max(0.0, time.time() - head.record.timestamp / 1000) if head.record.timestamp > 0 else 0.0
        if not self.lag(lane):
            self._behind.pop(lane, None)
            return 0.0
        return time.monotonic() - self._behind.setdefault(lane, time.monotonic())

    async def _read_ends(self, lanes: Sequence[Lane]) -> None:
        async with asyncio.timeout(_WITHIN):
            self._ends.update(await self._consumer.end_offsets(lanes))
