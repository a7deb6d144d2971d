"""Where logs begin and end now, seen without joining a group."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from worker.errors import ServiceUnavailable
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.listing import list_topics
from worker.kafka.security import client_options
from worker.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Log:
    """One partition's log."""

    begin: int
    end: int
    topic_id: bytes | None


async def read_bounds(kafka: KafkaSettings, topic: str, partitions: Collection[int]) -> dict[int, Log]:
    """The logs of those partitions of a topic that exist; as a read_committed reader sees them."""
    consumer: Any = AIOKafkaConsumer(
        **client_options(kafka), enable_auto_commit=False, isolation_level="read_committed"
    )
    timeout = kafka.request_timeout.total_seconds()
    try:
        async with explain_bootstrap(kafka):
            await consumer.start()
        found = (await list_topics(consumer._client, [topic])).get(topic)
        if found is None:
            return {}
        wanted = [TopicPartition(topic, number) for number in sorted(partitions) if number < found.partitions]
        begins = await asyncio.wait_for(consumer.beginning_offsets(wanted), timeout)
        ends = await asyncio.wait_for(consumer.end_offsets(wanted), timeout)
        return {tp.partition: Log(begins[tp], ends[tp], found.id) for tp in wanted}
    except (KafkaError, TimeoutError) as error:
        raise ServiceUnavailable("kafka", f"Kafka did not say where {topic} ends: {type(error).__name__}") from error
    finally:
        await consumer.stop()
