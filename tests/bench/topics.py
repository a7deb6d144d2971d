"""The topics of one benchmark: filled once, read by many groups, removed in the end."""

import contextlib
import secrets
from collections.abc import Iterator, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.bench.messages import orders
from tests.stack import client
from worker.stack import Stack

PARTITIONS = 8


class Topics:
    """A topic for each number of messages; the first messages of a longer one are those of a shorter one."""

    def __init__(self, settings: Mapping[str, str], run: str, names: Mapping[int, str]) -> None:
        self.run = run
        self.names = names
        # Only emergencies: that the broker goes away in the end is no news.
        self._admin = AdminClient({**settings, "log_level": "0"})

    def committed(self, group: str, messages: int) -> int:
        """How many records of the topic lie below the group's committed offsets."""
        places = [TopicPartition(self.names[messages], number) for number in range(PARTITIONS)]
        asked = ConsumerGroupTopicPartitions(group, places)
        found = self._admin.list_consumer_group_offsets([asked])[group].result(10).topic_partitions
        return sum(max(0, place.offset) for place in found)

    def forget(self, group: str) -> None:
        """Remove a group nobody needs any more."""
        with contextlib.suppress(KafkaException):
            self._admin.delete_consumer_groups([group])[group].result(10)

    def remove(self) -> None:
        for answer in self._admin.delete_topics(list(self.names.values())).values():
            answer.result(10)


@contextlib.contextmanager
def filled(stack: Stack, settings: Mapping[str, str], sizes: set[int]) -> Iterator[Topics]:
    """Topics with so many messages each."""
    run = secrets.token_hex(3)
    topics = Topics(settings, run, {size: f"bench-{run}-{size}" for size in sizes})
    stack.create_topics(dict.fromkeys(topics.names.values(), PARTITIONS))
    try:
        for size, name in topics.names.items():
            client.produce(settings["bootstrap.servers"], name, orders(run, size))
        yield topics
    finally:
        topics.remove()
