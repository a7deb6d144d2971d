"""A Kafka client that is not aiokafka, so that the suite does not test aiokafka with itself."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


class Sent(NamedTuple):
    """One record to produce; without a partition the key decides."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1
    timestamp_ms: int = 0


class Seen(NamedTuple):
    """One record as it lies in the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def produce(bootstrap: str, topic: str, records: Iterable[Sent | bytes]) -> list[tuple[int, int]]:
    """Write the records, acks=all, and give partition and offset of each in the order given; none may be refused."""
    places: dict[int, tuple[int, int]] = {}
    refused: list[KafkaError] = []

    def delivered(index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error)
        else:
            places[index] = (message.partition(), message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2})
    for index, record in enumerate(records):
        one = Sent(record) if isinstance(record, bytes) else record
        producer.produce(
            topic,
            value=one.value,
            key=one.key,
            headers=list(one.headers),
            partition=one.partition,
            timestamp=one.timestamp_ms,
            on_delivery=lambda error, message, index=index: delivered(index, error, message),
        )
        producer.poll(0)
    left = producer.flush(30)
    assert not refused, f"{len(refused)} refused: {refused[0]}"
    assert not left, f"{left} unanswered"
    return [places[index] for index in sorted(places)]


def consume_all(bootstrap: str, topic: str, timeout: float = 30.0) -> list[Seen]:
    """Everything in the topic up to its end now, read_committed, ordered by partition and offset; no group involved."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=timeout).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        seen: list[Seen] = []
        unfinished = set(partitions)
        while unfinished:
            message = consumer.poll(timeout)
            assert message is not None, f"partitions {unfinished} of {topic} did not end within {timeout} s"
            if (error := message.error()) is None:
                seen.append(_seen(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise AssertionError(f"{topic}: {error}")
        return sorted(seen, key=lambda one: one[:2])
    finally:
        consumer.close()


def _seen(message: Message) -> Seen:
    return Seen(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )
