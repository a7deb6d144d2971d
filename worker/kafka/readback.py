"""Reading single records back from where they stand: a consumer of no group, which commits nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from worker.errors import OnceboxError, ServiceUnavailable
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.security import client_options
from worker.kafka.topics import open_topics
from worker.rules.record import Record
from worker.settings import KafkaSettings

Notice = Callable[..., None]


class ReadBack:
    """Opened when something is to be read, replaced when it fails; one record at a time."""

    def __init__(self, kafka: KafkaSettings, notice: Notice) -> None:
        self._kafka = kafka
        self._notice = notice
        self._consumer: Any = None
        self._reading = asyncio.Lock()
        self._known: set[TopicPartition] = set()

    async def read(self, topic: str, partition: int, offset: int) -> Record | None:
        """The record that stands exactly there; None if the topic, or that record in it, is gone."""
        async with self._reading:
            try:
                async with asyncio.timeout(self._kafka.request_timeout.total_seconds() * 2):
                    return await self._read(TopicPartition(topic, partition), offset)
            except OffsetOutOfRangeError:
                return None
            except (KafkaError, OnceboxError, TimeoutError, UnicodeDecodeError) as error:
                await self._drop()
                raise ServiceUnavailable(
                    "kafka", f"{topic}/{partition}@{offset} could not be read: {type(error).__name__}: {error}"
                ) from error

    async def close(self) -> None:
        async with self._reading:
            await self._drop()

    async def _read(self, place: TopicPartition, offset: int) -> Record | None:
        if not await self._exists(place):
            return None
        consumer = await self._open()
        if consumer.assignment() != {place}:
            consumer.assign([place])
        if offset >= (await consumer.end_offsets([place]))[place]:
            return None
        # One that retention has taken is out of range, which the client raises.
        consumer.seek(place, offset)
        consumer.resume(place)
        try:
            return await self._at(consumer, place, offset)
        finally:
            # Otherwise the client would go on fetching what nobody reads.
            consumer.pause(place)

    async def _at(self, consumer: Any, place: TopicPartition, offset: int) -> Record | None:
        # Compaction, or an aborted transaction, may have taken it: then the next one answers, or the position moves on.
        while await consumer.position(place) <= offset:
            found = await consumer.getmany(place, timeout_ms=200, max_records=1)
            for record in found.get(place, ()):
                return record if record.offset == offset else None
        return None

    async def _exists(self, place: TopicPartition) -> bool:
        """The client would ask for an unknown topic for ever, so an administrator asks first, once for each."""
        if place not in self._known:
            async with open_topics(self._kafka) as admin:
                if place.partition >= (await admin.partitions([place.topic])).get(place.topic, 0):
                    return False
            self._known.add(place)
        return True

    async def _open(self) -> Any:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                **client_options(self._kafka),
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                # A fetch that is still waiting at the end of another partition would hold up the next read.
                fetch_max_wait_ms=10,
                max_partition_fetch_bytes=self._kafka.partition_fetch_bytes,
            )
            try:
                async with explain_bootstrap(self._kafka):
                    await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            self._consumer = consumer
        return self._consumer

    async def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._known.clear()
        if consumer is None:
            return
        try:
            await asyncio.wait_for(consumer.stop(), 5)
        except (KafkaError, TimeoutError) as error:
            self._notice("consumer_stop_failed", error=type(error).__name__)
            await consumer._client.close()
