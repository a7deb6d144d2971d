"""Where each partition is read from: never silently at the beginning or the end."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from worker.errors import ServiceUnavailable
from worker.kafka.listing import list_topics
from worker.rules.lanes import KnownPlace, Lane, Progress, remember_forgotten

Notice = Callable[..., None]
_NOTHING_KNOWN = KnownPlace(None, None, None)


class Feeds(Protocol):
    """Remembers what groups read, where the first worker ever began, and how far they have come."""

    async def register(
        self, group: str, topic: str, partitions: Collection[int], operations: Collection[int]
    ) -> None: ...
    async def known(self, group: str, topic: str) -> dict[int, KnownPlace]: ...
    async def starts(self, group: str, topic: str, found: Mapping[int, int]) -> dict[int, int]: ...
    async def place(self, group: str, topic: str, lanes: Sequence[Lane], followed: Mapping[int, int]) -> None: ...
    async def moment(self) -> datetime: ...
    async def sample(self, group: str, moment: datetime, progress: Sequence[Progress]) -> None: ...
    async def forgotten(
        self, topic: str, operations: Collection[int], topic_id: bytes | None
    ) -> dict[int, dict[int, int]]: ...


class Places:
    """Finds the first offset of each assigned partition."""

    def __init__(
        self,
        *,
        group: str,
        start: str | datetime,
        operations: Mapping[str, Collection[int]],
        feeds: Feeds,
        notice: Notice,
    ) -> None:
        self._group = group
        self._operations = operations
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
        lanes: dict[TopicPartition, Lane] = {}
        for topic in sorted({tp.topic for tp in partitions}):
            lanes.update(await self._find_in(consumer, topic, [tp for tp in partitions if tp.topic == topic]))
        return lanes

    async def _find_in(self, consumer: Any, topic: str, mine: Sequence[TopicPartition]) -> dict[TopicPartition, Lane]:
        feeds, group = self._feeds, self._group
        operations = self._operations.get(topic, ())
        # Before anything is known about it, a partition keeps what it may need from being pruned.
        await feeds.register(group, topic, [tp.partition for tp in mine], operations)
        moment = await feeds.moment()
        known = await feeds.known(group, topic)
        listed = (await list_topics(consumer._client, [topic])).get(topic)
        begins, ends = await consumer.beginning_offsets(list(mine)), await consumer.end_offsets(list(mine))
        lanes: dict[TopicPartition, Lane] = {}
        moved: dict[TopicPartition, Lane] = {}
        for tp in mine:
            found = known.get(tp.partition, _NOTHING_KNOWN)
            committed = await consumer.committed(tp)
            place, why = _place(found, committed, begins[tp], ends[tp], listed.id if listed else None)
            if place is None:
                continue
            lane = Lane(topic, tp.partition, place)
            # A legal position even if it is held: the other partitions must be read. Its watermark stays where it was.
            lane.position = min(max(place, begins[tp]), ends[tp])
            lane.committed, lane.held = committed, why
            lanes[tp] = lane
            if found.go_on_at is not None and why is None:
                moved[tp] = lane
        moved |= await self._fresh(consumer, [tp for tp in mine if tp not in lanes], begins, ends)
        lanes |= moved
        if moved:
            # Before they are read: who dies now finds the same places again.
            await consumer.commit({tp: lane.position for tp, lane in moved.items()})
            for lane in moved.values():
                lane.committed = lane.position
        for lane in lanes.values():
            lane.topic_id = listed.id if listed else None
        followed = {number: place.go_on_at for number, place in known.items() if place.go_on_at is not None}
        await feeds.place(group, topic, list(lanes.values()), followed)
        # In this order: a prune that does not see this sample has announced what it deletes before we ask about it.
        progress = [
            Progress(lane, ends[tp], lane.committed)
            for tp, lane in lanes.items()
            if lane.held is None and lane.committed is not None
        ]
        await feeds.sample(group, moment, progress)
        await remember_forgotten(feeds, topic, operations, lanes.values())
        return lanes

    async def _fresh(
        self, consumer: Any, mine: Sequence[TopicPartition], begins: Any, ends: Any
    ) -> dict[TopicPartition, Lane]:
        """Partitions nobody of the group has read: at the first worker's decision."""
        if not mine:
            return {}
        topic = mine[0].topic
        everyone = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        found = await self._wanted(consumer, everyone or mine)
        starts = await self._feeds.starts(self._group, topic, {tp.partition: o for tp, o in found.items()})
        return {
            tp: Lane(topic, tp.partition, min(max(starts.get(tp.partition, begins[tp]), begins[tp]), ends[tp]))
            for tp in mine
        }

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


def _place(
    known: KnownPlace, committed: int | None, begin: int, end: int, topic_id: bytes | None
) -> tuple[int | None, str | None]:
    """Where a partition is read from (None: nobody has begun), and why it must not be read from there."""
    decided = known.go_on_at
    if decided is not None:
        # What was in flight when the partition was held may not be finished: then its place is further down.
        unfinished = committed is not None and begin <= committed < decided
        wanted = committed if unfinished else decided
        if wanted is not None and begin <= wanted <= end:
            return wanted, None
        return wanted, f"an operator let it go on at offset {wanted}, but the log is {begin}..{end} by now"
    # Kafka forgets the offsets of an idle group; our own samples still know the place.
    place = known.watermark if committed is None else committed
    if place is None:
        return None, None
    if known.topic_id is not None and topic_id is not None and known.topic_id != topic_id:
        return place, f"the topic was created anew: its log is {begin}..{end}, and offset {place} was in another one"
    if not begin <= place <= end or (known.watermark or 0) > end:
        return place, (
            f"offset {place} (stored watermark {known.watermark}) does not fit the log {begin}..{end}:"
            " retention overtook it, or the topic was created anew"
        )
    return place, None
