"""Where each partition is read from: never silently at the beginning or the end."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from worker.errors import ServiceUnavailable
from worker.rules.lanes import Lane, remember_forgotten

Notice = Callable[..., None]


class Starts(Protocol):
    """Remembers, for all partitions of a group's topic, where the first worker ever began."""

    async def starts(self, group: str, topic: str, found: Mapping[int, int]) -> dict[int, int]: ...
    async def watermarks(self, group: str, topic: str) -> dict[int, int]: ...
    async def forgotten(self, topic: str, ttl: float) -> dict[int, int]: ...


class Places:
    """Finds the first offset of each assigned partition."""

    def __init__(
        self,
        *,
        group: str,
        start: str | datetime,
        ttls: Mapping[str, Collection[float]],
        feeds: Starts,
        notice: Notice,
    ) -> None:
        self._group = group
        self._ttls = ttls
        self._start = start
        self._feeds = feeds
        self._notice = notice

    async def find(self, consumer: Any, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Lane]:
        """Lanes at their places; goes on until Kafka and the ledger answer."""
        attempt = 0
        while True:
            try:
                return await self._find(consumer, partitions)
            except (KafkaError, ServiceUnavailable, TimeoutError) as error:
                attempt += 1
                self._notice("placing_failed", error=f"{type(error).__name__}: {error}", next="trying again")
                await asyncio.sleep(min(2.0, 0.1 * 2.0 ** min(attempt, 10)))

    async def _find(self, consumer: Any, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Lane]:
        if not partitions:
            return {}
        begins = await consumer.beginning_offsets(list(partitions))
        ends = await consumer.end_offsets(list(partitions))
        stored = {t: await self._feeds.watermarks(self._group, t) for t in {tp.topic for tp in partitions}}
        lanes: dict[TopicPartition, Lane] = {}
        fresh = []
        for tp in partitions:
            committed = await consumer.committed(tp)
            watermark = stored[tp.topic].get(tp.partition)
            # Kafka forgets the offsets of an idle group; our own samples still know the place.
            place = watermark if committed is None else committed
            if place is None:
                fresh.append(tp)
                continue
            lane = Lane(tp.topic, tp.partition, place)
            lane.committed = committed
            if not begins[tp] <= place <= ends[tp] or (watermark or 0) > ends[tp]:
                # A legal position, so that the other partitions are read; held, so that nobody reads this one.
                lane.held = (
                    f"offset {place} (stored watermark {watermark}) does not fit the log {begins[tp]}..{ends[tp]}:"
                    " retention overtook it, or the topic was created anew"
                )
                lane.position = min(max(place, begins[tp]), ends[tp])
            lanes[tp] = lane
        lanes.update(await self._fresh(consumer, fresh, begins, ends))
        for topic in stored:
            # Before the first record is read: a rewound position must not run what was done and forgotten.
            await remember_forgotten(self._feeds, topic, self._ttls.get(topic, ()), lanes.values())
        return lanes

    async def _fresh(
        self, consumer: Any, partitions: Sequence[TopicPartition], begins: Any, ends: Any
    ) -> dict[TopicPartition, Lane]:
        """Partitions nobody of the group has read: at the first worker's decision, committed before they are read."""
        lanes: dict[TopicPartition, Lane] = {}
        for topic in sorted({tp.topic for tp in partitions}):
            mine = [tp for tp in partitions if tp.topic == topic]
            everyone = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
            found = await self._wanted(consumer, everyone or mine)
            starts = await self._feeds.starts(self._group, topic, {tp.partition: o for tp, o in found.items()})
            for tp in mine:
                offset = min(max(starts.get(tp.partition, begins[tp]), begins[tp]), ends[tp])
                lanes[tp] = Lane(topic, tp.partition, offset)
        if lanes:
            await consumer.commit({tp: lane.position for tp, lane in lanes.items()})
            for lane in lanes.values():
                lane.committed = lane.position
        return lanes

    async def _wanted(self, consumer: Any, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self._start == "earliest":
            return dict(await consumer.beginning_offsets(list(partitions)))
        ends: dict[TopicPartition, int] = await consumer.end_offsets(list(partitions))
        if self._start == "latest":
            return ends
        assert isinstance(self._start, datetime)
        moment = round(self._start.timestamp() * 1000)
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, moment))
        return {tp: ends[tp] if found.get(tp) is None else found[tp].offset for tp in partitions}
