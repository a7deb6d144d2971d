"""Listing topics: their ids where the broker tells, and never one that it would create."""

from tests.conftest import MakeTopic
from tests.stack.test_memory import memory
from tests.waiting import eventually
from worker.kafka.topics import Topics, open_topics
from worker.rules.horizons import FoundTopic
from worker.settings import KafkaSettings
from worker.stack import Stack

__all__ = ["memory"]


async def test_a_topic_has_an_id_of_its_own(kafka: str, topic: MakeTopic) -> None:
    one, other = topic(3), topic()
    async with open_topics(KafkaSettings(bootstrap_servers=(kafka,))) as topics:
        # A broker lists a topic a moment after it was created.
        found = await eventually(lambda: _both(topics, one, other), message="not listed")
        assert await topics.missing(["t-never-created"]) == ["t-never-created"], "asking creates nothing"
    assert set(found) == {one, other}
    assert (found[one].partitions, found[other].partitions) == (3, 1)
    ids = {found[one].id, found[other].id}
    assert [len(id_ or b"") for id_ in ids] == [16, 16]


async def _both(topics: Topics, *names: str) -> dict[str, FoundTopic] | None:
    found = await topics.found([*names, "t-never-created"])
    return found if len(found) >= len(names) else None


async def test_the_demo_broker_lists_them_too(memory: Stack) -> None:
    assert memory.kafka is not None
    memory.create_topics({"listed": 2})
    async with open_topics(KafkaSettings(bootstrap_servers=(memory.kafka.url,))) as topics:
        found = await topics.found(["listed"])
    assert found["listed"].partitions == 2
