"""The in-memory broker: enough for a demo on a machine with nothing but Python."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.stack.holding import holder
from tests.waiting import eventually
from worker.errors import ConfigError
from worker.stack import Stack, start

NOWHERE = {"PATH": "/nowhere", "DOCKER_HOST": "unix:///nowhere/docker.sock"}


@pytest.fixture(scope="module")
def memory() -> Iterator[Stack]:
    environment = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME"}} | NOWHERE
    for variable in ("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_BROKERS"):
        environment.pop(variable, None)
    with start(["kafka"], say=lambda _: None, environment=environment) as stack:
        yield stack


def test_it_says_what_it_is(memory: Stack) -> None:
    assert memory.kafka is not None
    assert memory.kafka.how == "memory"
    for word in ("no Docker engine", "Java was not found", "demo only", "forgets"):
        assert word in memory.kafka.why
    assert memory.environment()["KAFKA_BOOTSTRAP_SERVERS"] == memory.kafka.url
    with pytest.raises(ConfigError, match="comes from memory"):
        memory.server("kafka")


def test_a_topic_exists_once(memory: Stack) -> None:
    memory.create_topics({"once": 3})
    memory.create_topics({"once": 3}, exist_ok=True)
    with pytest.raises(ConfigError, match="topic once already exists"):
        memory.create_topics({"once": 3})


@pytest.mark.parametrize("members", [2, 3])
async def test_members_of_one_group_share_the_topic_and_read_all_of_it(memory: Stack, members: int) -> None:
    assert memory.kafka is not None
    topic, group, address = f"shared-{members}", f"group-{members}", memory.kafka.url
    memory.create_topics({topic: 6})
    seen: set[bytes] = set()
    consumers = [_member(topic, group, address) for _ in range(members)]
    producer = AIOKafkaProducer(bootstrap_servers=address)
    await asyncio.gather(producer.start(), *(consumer.start() for consumer in consumers))
    reading = [asyncio.create_task(_read(consumer, seen)) for consumer in consumers]
    try:
        await eventually(lambda: sum(len(one.assignment()) for one in consumers) == 6, 30, "all partitions assigned")
        assert all(consumer.assignment() for consumer in consumers)
        sent = {f"v{number}".encode() for number in range(300)}
        await asyncio.gather(*[producer.send_and_wait(topic, value) for value in sent])
        await eventually(lambda: seen == sent, 20, "all values read")
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await asyncio.gather(producer.stop(), *(consumer.stop() for consumer in consumers))


def test_kill_9_of_the_parent_ends_it_too() -> None:
    with holder(["kafka"], NOWHERE) as held:
        assert held.services["kafka"][0] == "memory"
        assert len(held.left()) == 1
        held.process.kill()
        held.expect_nothing_left()


def _member(topic: str, group: str, address: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=3000,
        heartbeat_interval_ms=500,
        fetch_max_wait_ms=50,
    )


async def _read(consumer: AIOKafkaConsumer, seen: set[bytes]) -> None:
    async for record in consumer:
        seen.add(record.value)
