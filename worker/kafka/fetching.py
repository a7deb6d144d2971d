"""Fetching from lanes: what cannot be read stops its own lane only, and a fetch that fails loses nothing."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from worker.rules.lanes import Lane
from worker.rules.record import Record

Notice = Callable[..., None]
Fetched = tuple[Lane, Sequence[Record], int]
_READ_ERRORS = 3
_READ_SINGLY = 100


class Fetching:
    """Reads for the consumer of a group. `lanes` gives those of the assignment there is at that moment."""

    def __init__(self, consumer: Any, lanes: Callable[[], Mapping[TopicPartition, Lane]], notice: Notice) -> None:
        self._consumer = consumer
        self._lanes = lanes
        self._notice = notice
        self._errors: dict[TopicPartition, int] = {}

    async def fetch(self, wanted: Mapping[TopicPartition, Lane], *, most: int, wait_ms: int) -> list[Fetched]:
        """What came next on these lanes, each with the position behind it."""
        try:
            found = await self._consumer.getmany(*wanted, timeout_ms=wait_ms, max_records=most)
        except OffsetOutOfRangeError as error:
            await self._out_of_range(error)
            return []
        except Exception as error:
            # Not only the client's own errors: a header name that is no UTF-8 raises UnicodeDecodeError, for ever.
            self._rewind(error)
            return await self._one_by_one(wanted)
        return await self._fetched(wanted, found)

    def hold(self, tp: TopicPartition, lane: Lane, why: str) -> None:
        """Read the lane no further until an operator has decided."""
        lane.held, lane.held_at = why, lane.position
        self._consumer.pause(tp)
        self._notice("partition_held", partition=str(lane), why=why, alert="operator must decide")

    def forget_errors(self, tp: TopicPartition | None = None) -> None:
        """What was hard to read, there or anywhere, is tried as if for the first time."""
        if tp is None:
            self._errors.clear()
        else:
            self._errors.pop(tp, None)

    async def _fetched(self, wanted: Mapping[TopicPartition, Lane], found: Mapping[Any, Any]) -> list[Fetched]:
        fetched: list[Fetched] = []
        for tp, lane in wanted.items():
            records = found.get(tp, ())
            if not self._is_current(tp, lane, drained=bool(records)):
                continue
            position = await self._consumer.position(tp)
            if records or position != lane.position:
                fetched.append((lane, records, position))
        return fetched

    def _is_current(self, tp: TopicPartition, lane: Lane, *, drained: bool) -> bool:
        """Whether the lane we asked for is still ours.

        A call that waited through a rebalance drains records of the new assignment: the client's position has moved
        past them, so the new lane must go back to its own, or it would commit what nobody has seen.
        """
        current = self._lanes().get(tp)
        if current is lane and not lane.revoked:
            return True
        if drained and current is not None and not current.revoked:
            self._consumer.seek(tp, current.position)
        return False

    async def _out_of_range(self, error: OffsetOutOfRangeError) -> None:
        for tp in error.args[0]:
            lane = self._lanes().get(tp)
            if lane is not None and lane.held is None:
                why = f"offset {lane.position} is outside the log: retention overtook it, or the topic is new"
                self.hold(tp, lane, why)

    async def _one_by_one(self, wanted: Mapping[TopicPartition, Lane]) -> list[Fetched]:
        """Read each partition alone, record by record, up to one that cannot be read; after three errors it is held.

        What is readable is delivered: so the unreadable record becomes the first of its partition, and stops no other.
        """
        await asyncio.sleep(0.1)
        fetched: list[Fetched] = []
        for tp, lane in wanted.items():
            records: list[Record] = []
            position = lane.position
            while len(records) < _READ_SINGLY and not lane.revoked and self._lanes().get(tp) is lane:
                try:
                    found = await self._consumer.getmany(tp, timeout_ms=50, max_records=1)
                except Exception as error:
                    self._blame(tp, lane, position, error)
                    break
                if not found.get(tp):
                    break
                if not self._is_current(tp, lane, drained=True):
                    break
                records += found[tp]
                position = records[-1].offset + 1
            if not self._is_current(tp, lane, drained=False):
                continue
            if records:
                self._errors.pop(tp, None)
                fetched.append((lane, records, position))
            self._consumer.seek(tp, position)
        return fetched

    def _blame(self, tp: TopicPartition, lane: Lane, position: int, error: Exception) -> None:
        self._errors[tp] = self._errors.get(tp, 0) + 1
        if self._errors[tp] >= _READ_ERRORS:
            self.hold(tp, lane, f"offset {position} cannot be read: {type(error).__name__}: {error}")

    def _rewind(self, error: Exception) -> None:
        """Records drained before the error are gone from the client although its position moved: go back to ours."""
        self._notice(
            "fetch_failed", error=f"{type(error).__name__}: {error}", next="reading again from the last record"
        )
        for tp, lane in self._lanes().items():
            if not lane.revoked and tp in self._consumer.assignment():
                self._consumer.seek(tp, lane.position)
