"""Real Kafka, Postgres and Redis for every test that asks, started once per run, and names that no other test uses."""

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import pytest

from tests.stack import client
from tests.stack.client import Seen, Sent
from worker.errors import ServiceUnavailable
from worker.stack import KafkaOptions, Service, Stack, start

MakeTopic = Callable[..., str]
Produce = Callable[[str, Iterable[Sent | bytes]], list[tuple[int, int]]]
ConsumeAll = Callable[[str], list[Seen]]


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Every service that can be had here; the in-memory broker is never one of them."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")

    def say(line: str) -> None:
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)

    names = ["kafka", "postgres", "redis"]
    while True:
        try:
            running = start(names, say=say, kafka_options=KafkaOptions(real=True))
            break
        except ServiceUnavailable as missing:
            if missing.service not in names or _in_ci():
                raise
            say(f"tests that need {missing.service} are skipped: {missing}")
            names.remove(missing.service)
    with running:
        yield running


@pytest.fixture(scope="session")
def kafka(stack: Stack) -> str:
    return _present(stack.kafka, "kafka")


@pytest.fixture(scope="session")
def database_url(stack: Stack) -> str:
    return _present(stack.postgres, "postgres")


@pytest.fixture(scope="session")
def redis_url(stack: Stack) -> str:
    return _present(stack.redis, "redis")


def _present(service: Service | None, name: str) -> str:
    return service.url if service else _absent(name)


def _absent(name: str) -> NoReturn:
    if _in_ci():
        pytest.fail(f"{name} cannot be had here, and CI must not skip")
    pytest.skip(f"{name} cannot be had here")


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"true", "1"}


@pytest.fixture
def topic(stack: Stack, kafka: str) -> MakeTopic:
    """`topic(3, cleanup_policy="compact")` creates a topic of its own and gives the name."""

    def make(partitions: int = 1, **config: Any) -> str:
        name = f"t-{secrets.token_hex(4)}"
        stack.create_topics({name: partitions}, {key.replace("_", "."): str(value) for key, value in config.items()})
        return name

    return make


@pytest.fixture
def group() -> str:
    return f"g-{secrets.token_hex(4)}"


@pytest.fixture
def schema(database_url: str) -> Iterator[str]:
    """A schema name of this test's own; whatever was created under it is dropped afterwards."""
    name = f"t_{secrets.token_hex(3)}"
    yield name
    # In a thread: asyncio.run would take away the event loop the plugin has set for this one.
    dropper = threading.Thread(target=lambda: asyncio.run(_drop(database_url, name)))
    dropper.start()
    dropper.join()


async def _drop(database_url: str, schema: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("SET client_min_messages = error")
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    finally:
        await connection.close()


@pytest.fixture
def produce(kafka: str) -> Produce:
    """`produce(topic, [b"value", Sent(b"value", key=b"k")])` gives [(partition, offset), ...]."""
    return lambda topic, records: client.produce(kafka, topic, records)


@pytest.fixture
def consume_all(kafka: str) -> ConsumeAll:
    """`consume_all(topic)` gives every committed record up to the topic's end now."""
    return lambda topic: client.consume_all(kafka, topic)
