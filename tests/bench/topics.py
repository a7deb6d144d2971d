"""The topics of one benchmark: filled when first asked for, read by many groups, removed in the end."""

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.bench import messages
from tests.stack.client import Sent
from worker.stack import Stack

PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class Topic:
    """A filled topic: how many messages it has, and how many different keys among them."""

    name: str
    messages: int
    keys: int
    partitions: int


class Topics:
    """Every topic of this benchmark; the first messages of a longer one are those of a shorter one."""

    def __init__(self, stack: Stack, settings: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.run = secrets.token_hex(3)
        self.bootstrap = settings["bootstrap.servers"]
        self._stack = stack
        self._say = say
        # Only emergencies: that the broker goes away in the end is no news.
        self._admin = AdminClient({**settings, "log_level": "0"})
        self._made: dict[str, Topic] = {}

    def orders(self, count: int) -> Topic:
        """Orders that are all different."""
        return self._filled(f"orders-{count}", messages.orders(self.run, count), Topic("", count, count, PARTITIONS))

    def mixed(self, count: int, share: float) -> Topic:
        """Orders of which a share come again."""
        topic = Topic("", count, count - int(count * share), PARTITIONS)
        return self._filled(f"mixed-{count}", messages.mixed(self.run, count, share), topic)

    def waiting(self, count: int, lines: int) -> Topic:
        """Orders of so many Kafka keys in one partition."""
        return self._filled(
            f"waiting-{count}-{lines}", messages.waiting(self.run, count, lines), Topic("", count, count, 1)
        )

    def empty(self, what: str, count: int) -> Topic:
        """A topic of its own for each call, into which so many messages will be sent."""
        return self._filled(f"{what}-{secrets.token_hex(3)}", (), Topic("", count, count, 1))

    def _filled(self, what: str, records: Iterable[Sent], topic: Topic) -> Topic:
        if what not in self._made:
            name = f"bench-{self.run}-{what}"
            self._stack.create_topics({name: topic.partitions})
            self._made[what] = Topic(name, topic.messages, topic.keys, topic.partitions)
            self._say(f"filling {name}")
            _produce(self.bootstrap, name, records)
        return self._made[what]

    def committed(self, group: str, topic: Topic) -> int:
        """How many records of the topic lie below the group's committed offsets."""
        places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        asked = ConsumerGroupTopicPartitions(group, places)
        found = self._admin.list_consumer_group_offsets([asked])[group].result(10).topic_partitions
        return sum(max(0, place.offset) for place in found)

    def forget(self, group: str) -> None:
        """Remove a group nobody needs any more."""
        with contextlib.suppress(KafkaException):
            self._admin.delete_consumer_groups([group])[group].result(10)

    def remove(self) -> None:
        if self._made:
            for answer in self._admin.delete_topics([topic.name for topic in self._made.values()]).values():
                answer.result(10)


@contextlib.contextmanager
def open_topics(stack: Stack, settings: Mapping[str, str], say: Callable[[str], None]) -> Iterator[Topics]:
    """Topics that are removed in the end."""
    topics = Topics(stack, settings, say)
    try:
        yield topics
    finally:
        topics.remove()


def _produce(bootstrap: str, topic: str, records: Iterable[Sent]) -> None:
    """Write the records; a full queue waits."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "batch.num.messages": 2000})
    for one in records:
        while True:
            try:
                producer.produce(topic, one.value, one.key, partition=one.partition, headers=list(one.headers))
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(60)
    assert not left, f"{left} records were not acknowledged"
