"""A Redis of our own: these tests kill, freeze and flush it."""

import os
from collections.abc import Iterator

import pytest

from tests.filter.world import World
from worker.stack import Stack, start


@pytest.fixture(scope="session")
def private_stack() -> Iterator[Stack]:
    elsewhere = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    environment = elsewhere | {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    with start(["redis"], say=lambda _: None, environment=environment) as stack:
        if stack.redis is None:
            if os.environ.get("CI", "").lower() in {"true", "1"}:
                pytest.fail("redis cannot be had here, and CI must not skip")
            pytest.skip("redis cannot be had here")
        yield stack


@pytest.fixture
def world(private_stack: Stack) -> World:
    """A running Redis, whatever the test before did to it, and a ledger nobody has seen."""
    assert private_stack.redis is not None
    server = private_stack.server("redis")
    server.resume()
    server.start()
    return World(server, private_stack.redis.url)
