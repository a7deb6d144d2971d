"""Where a consumer group stands on one partition, asked without joining the group."""

from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from worker.errors import ServiceUnavailable, UsageError
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.security import client_options
from worker.kafka.topics import open_topics
from worker.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Standing:
    """The log of a partition, and what the group has committed of it; None before it has."""

    begin: int
    end: int
    committed: int | None


async def standing(kafka: KafkaSettings, topic: str, partition: int) -> Standing:
    """Ask Kafka; a topic or partition that does not exist is refused."""
    async with open_topics(kafka) as admin:
        count = (await admin.partitions([topic])).get(topic)
    if count is None:
        raise UsageError(f"Kafka has no topic {topic!r}")
    if not 0 <= partition < count:
        raise UsageError(f"topic {topic} has {count} partition(s): there is no partition {partition}")
    consumer: Any = AIOKafkaConsumer(
        **client_options(kafka), group_id=kafka.group, enable_auto_commit=False, isolation_level="read_committed"
    )
    try:
        async with explain_bootstrap(kafka):
            await consumer.start()
        place = TopicPartition(topic, partition)
        begin = (await consumer.beginning_offsets([place]))[place]
        end = (await consumer.end_offsets([place]))[place]
        return Standing(begin, end, await consumer.committed(place))
    except KafkaError as error:
        raise ServiceUnavailable("kafka", f"Kafka did not answer: {type(error).__name__}: {error}") from error
    finally:
        await consumer.stop()
