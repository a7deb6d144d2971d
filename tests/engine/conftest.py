"""Sites for the engine's tests: on the stack all tests share, and on servers of their own that may be hurt."""

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.engine.site import Site
from worker.errors import ServiceUnavailable
from worker.observe.logs import notice
from worker.stack import KafkaOptions, Stack, start


@pytest_asyncio.fixture
async def site(
    kafka: str, database_url: str, schema: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    """A migrated site with nothing on it."""
    monkeypatch.setenv("SITE_FOLDER", str(tmp_path))
    async with opened(Site(kafka, database_url, schema, group, tmp_path)) as made:
        yield made


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events that workers in this process have told of so far."""
    told: list[str] = []

    def listening(event: str, **fields: Any) -> None:
        told.append(event)
        notice(event, **fields)

    monkeypatch.setattr("worker.app.serving.notice", listening)
    return told


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Stack]:
    """A Postgres that may be stopped."""
    with _private("postgres") as stack:
        yield stack


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[Stack]:
    """A broker that may be stopped."""
    with _private("kafka") as stack:
        yield stack


@pytest_asyncio.fixture
async def site_on_own_postgres(kafka: str, own_postgres: Stack, group: str, tmp_path: Path) -> AsyncIterator[Site]:
    assert own_postgres.postgres is not None
    schema = f"t_{secrets.token_hex(3)}"
    async with opened(Site(kafka, own_postgres.postgres.url, schema, group, tmp_path)) as made:
        yield made


@pytest_asyncio.fixture
async def site_on_own_kafka(
    own_kafka: Stack, database_url: str, schema: str, group: str, tmp_path: Path
) -> AsyncIterator[Site]:
    assert own_kafka.kafka is not None
    async with opened(Site(own_kafka.kafka.url, database_url, schema, group, tmp_path)) as made:
        yield made


@contextlib.asynccontextmanager
async def opened(site: Site) -> AsyncIterator[Site]:
    await site.migrate()
    try:
        yield site
    finally:
        site.close()


def _private(name: str) -> Stack:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("KAFKA_") and n != "DATABASE_URL"}
    environment["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    try:
        return start([name], say=lambda _: None, environment=environment, kafka_options=KafkaOptions(real=True))
    except ServiceUnavailable as missing:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            raise
        pytest.skip(str(missing))
