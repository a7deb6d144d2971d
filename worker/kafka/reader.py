"""Reading windows of a topic: a consumer of its own without a group, so that nobody's place is touched."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from worker.errors import OnceboxError, ServiceUnavailable, UsageError
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.security import client_options
from worker.kafka.stopping import stop_consumer
from worker.kafka.topics import open_topics
from worker.rules.record import Record
from worker.rules.windows import Extent, Span, Window, span
from worker.settings import KafkaSettings

Notice = Callable[..., None]
Fetched = tuple[int, Sequence[Record], int]
T = TypeVar("T")
_READ_ERRORS = 3
_READ_SINGLY = 100


class Reader:
    """Reads spans of one topic, each up to its end. One caller at a time."""

    def __init__(self, consumer: Any, kafka: KafkaSettings, topic: str, count: int, notice: Notice) -> None:
        self._consumer = consumer
        self._kafka = kafka
        self.topic = topic
        self._count = count
        self._notice = notice
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._errors: dict[int, int] = {}

    async def spans(self, window: Window, *, group: str | None = None) -> list[Span]:
        """What the window is now, by partition; with a group an open window ends where that group is."""
        wrong = [p for p in window.partitions if not 0 <= p < self._count]
        if wrong:
            raise UsageError(
                f"topic {self.topic} has no partition {', '.join(map(str, wrong))}\n  it has 0 to {self._count - 1}"
            )
        places = [self._place(p) for p in sorted(set(window.partitions)) or range(self._count)]
        firsts = await self._asked(self._consumer.beginning_offsets(places))
        # As a read_committed reader sees it; the last ones may be control records, so only a position reaches it.
        pasts = await self._asked(self._consumer.end_offsets(places))
        found: Mapping[Any, Any] = {}
        if window.since is not None:
            # A superset: of timestamps that are in no order, the first one that is late enough.
            found = await self._asked(self._consumer.offsets_for_times(dict.fromkeys(places, max(window.since, 0))))
        committed: Mapping[int, int] = {}
        if window.open_ended and group is not None:
            async with open_topics(self._kafka) as admin:
                committed = await admin.group_offsets(group, self.topic)
        spans = []
        for tp in places:
            at = found.get(tp)
            until = committed.get(tp.partition) if group is not None else pasts[tp]
            extent = Extent(
                firsts[tp],
                pasts[tp],
                None if at is None else at.offset,
                None if at is None else at.timestamp,
                until,
            )
            spans.append(span(tp.partition, window, extent))
        return spans

    def begin(self, spans: Sequence[Span]) -> None:
        """Start reading; what is empty is read already."""
        wanted = [s for s in spans if s.begin < s.end]
        self._positions = {s.partition: s.begin for s in wanted}
        self._ends = {s.partition: s.end for s in wanted}
        self._consumer.assign([self._place(s.partition) for s in wanted])
        for s in wanted:
            self._consumer.seek(self._place(s.partition), s.begin)

    @property
    def open(self) -> list[int]:
        """Partitions that have not been read to their end."""
        return [p for p, end in self._ends.items() if self._positions[p] < end]

    async def poll(self, partitions: Sequence[int], *, most: int, wait_ms: int) -> list[Fetched]:
        """What came next on these partitions, below their ends, each with the position behind it."""
        wanted = [self._place(p) for p in partitions if p in self._ends and self._positions[p] < self._ends[p]]
        if not wanted:
            return []
        try:
            found = await self._consumer.getmany(*wanted, timeout_ms=wait_ms, max_records=most)
        except OffsetOutOfRangeError as error:
            raise self._overtaken(error) from error
        except Exception as error:
            # Records drained before the error are lost to the client although its position moved: go back to ours.
            self._notice("fetch_failed", error=f"{type(error).__name__}: {error}", next="reading one by one")
            return await self._singly(wanted)
        return [f for tp in wanted if (f := await self._moved(tp, found.get(tp, ()))) is not None]

    async def everything(self, *, most: int = 1000) -> AsyncIterator[Fetched]:
        """Every record of the spans, until all ends are reached."""
        while self.open:
            for fetched in await self.poll(self.open, most=most, wait_ms=500):
                yield fetched

    async def _moved(self, tp: TopicPartition, records: Sequence[Record]) -> Fetched | None:
        """A position is reached by reading on, never by a record of that offset: it steps over control records."""
        partition, end = tp.partition, self._ends[tp.partition]
        position = min(await self._consumer.position(tp), end)
        if records and records[-1].offset >= end:
            records = [r for r in records if r.offset < end]
        if position >= end:
            self._consumer.pause(tp)
        if not records and position == self._positions[partition]:
            return None
        self._positions[partition] = position
        return (partition, records, position)

    async def _singly(self, wanted: Sequence[TopicPartition]) -> list[Fetched]:
        """Read each partition alone, record by record, up to one that cannot be read; three times there is the end."""
        for tp in wanted:
            self._consumer.seek(tp, self._positions[tp.partition])
        fetched: list[Fetched] = []
        for tp in wanted:
            partition, end = tp.partition, self._ends[tp.partition]
            records: list[Record] = []
            position = self._positions[partition]
            while len(records) < _READ_SINGLY and position < end:
                try:
                    found = await self._consumer.getmany(tp, timeout_ms=50, max_records=1)
                except Exception as error:
                    self._blame(partition, position, error)
                    break
                if not found.get(tp):
                    break
                records += found[tp]
                position = records[-1].offset + 1
            if records:
                self._errors.pop(partition, None)
                self._positions[partition] = min(position, end)
                fetched.append((partition, [r for r in records if r.offset < end], self._positions[partition]))
            self._consumer.seek(tp, position)
        if not fetched:
            await asyncio.sleep(0.1)
        return fetched

    def _blame(self, partition: int, position: int, error: Exception) -> None:
        self._errors[partition] = self._errors.get(partition, 0) + 1
        if self._errors[partition] >= _READ_ERRORS:
            raise OnceboxError(
                f"{self.topic}/{partition} cannot be read at or after offset {position}: {type(error).__name__}:"
                f" {error}\n  read the rest with --partition {partition} --from-offset behind it"
            )

    def _overtaken(self, error: OffsetOutOfRangeError) -> OnceboxError:
        places = ", ".join(f"{tp.topic}/{tp.partition} from offset {at}" for tp, at in error.args[0].items())
        return OnceboxError(f"retention removed what was still to be read: {places}\n  start again with --partial")

    async def _asked(self, question: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(question, self._kafka.request_timeout.total_seconds())
        except (KafkaError, TimeoutError) as error:
            raise ServiceUnavailable("kafka", f"Kafka did not answer: {type(error).__name__}: {error}") from error

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)


@asynccontextmanager
async def open_reader(kafka: KafkaSettings, topic: str, notice: Notice) -> AsyncIterator[Reader]:
    """A reader of one topic for a while; a topic that does not exist is refused, and not created by asking."""
    async with open_topics(kafka) as admin:
        count = (await admin.partitions([topic])).get(topic)
    if count is None:
        raise UsageError(f"Kafka has no topic {topic}")
    consumer: Any = AIOKafkaConsumer(
        **client_options(kafka),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        fetch_max_wait_ms=round(kafka.fetch_wait.total_seconds() * 1000),
        fetch_max_bytes=kafka.fetch_max_bytes,
        max_partition_fetch_bytes=kafka.partition_fetch_bytes,
    )
    try:
        async with explain_bootstrap(kafka):
            await consumer.start()
        # Offsets can be asked for only once the client knows who leads the partitions.
        await consumer._client.add_topic(topic)
        yield Reader(consumer, kafka, topic, count, notice)
    finally:
        await stop_consumer(consumer, kafka.request_timeout.total_seconds() + 5, notice)
