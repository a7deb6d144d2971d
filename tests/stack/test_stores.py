"""Postgres and Redis of our own: closed to strangers, and what fault tests do to them."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from worker.stack import Stack, ports, start

ONCE = Retry(NoBackoff(), 0)
ELSEWHERE = ("DATABASE_URL", "REDIS_URL")


def _environment() -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    return given | {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


@pytest.fixture(scope="module")
def stores() -> Iterator[Stack]:
    said: list[str] = []
    with start(["postgres", "redis"], say=said.append, environment=_environment()) as stack:
        assert [line.partition(":")[0] for line in said] == ["postgres", "redis"]
        yield stack


async def test_postgres_refuses_a_wrong_password(stores: Stack) -> None:
    connection = await asyncpg.connect(_url(stores, "postgres"))
    assert await connection.fetchval("SHOW fsync") == "on"
    await connection.close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(_url(stores, "postgres"), password="guess")


def test_redis_refuses_a_wrong_or_missing_password(stores: Stack) -> None:
    port = int(_url(stores, "redis").rpartition(":")[2].removesuffix("/0"))
    for password in ("guess", None):
        with (
            redis.Redis(port=port, password=password, retry=ONCE) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()


def test_they_listen_on_loopback_only_and_never_as_root(stores: Stack) -> None:
    for server in stores.servers:
        process = psutil.Process(server.pid)
        listening = {one.laddr for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
        assert {address.ip for address in listening} == {"127.0.0.1"}
        assert all(address.port < 32768 for address in listening)
    assert psutil.Process(stores.server("postgres").pid).uids().real != 0


@pytest.mark.parametrize("sign", [signal.SIGQUIT, signal.SIGINT, signal.SIGKILL])
async def test_postgres_comes_back_on_its_port_with_its_data(stores: Stack, sign: signal.Signals) -> None:
    url, server = _url(stores, "postgres"), stores.server("postgres")
    before = await asyncpg.connect(url)
    await before.execute(f"CREATE TABLE kept_{sign.name} AS SELECT 1 AS one")
    server.stop(sign)
    server.start()
    after = await asyncpg.connect(url)
    assert await after.fetchval(f"SELECT one FROM kept_{sign.name}") == 1
    await after.close()
    before.terminate()


async def test_a_frozen_postgres_answers_when_it_is_thawed(stores: Stack) -> None:
    connection = await asyncpg.connect(_url(stores, "postgres"))
    stores.server("postgres").pause()
    with pytest.raises(TimeoutError):
        await connection.fetchval("SELECT 1", timeout=0.3)
    stores.server("postgres").resume()
    connection.terminate()
    again = await asyncpg.connect(_url(stores, "postgres"))
    assert await again.fetchval("SELECT 1") == 1
    await again.close()


def test_redis_comes_back_on_its_port(stores: Stack) -> None:
    stores.server("redis").kill()
    stores.server("redis").start()
    with redis.Redis.from_url(_url(stores, "redis"), retry=ONCE) as client:
        assert client.ping()


def test_a_port_that_a_stranger_took_in_between_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        monkeypatch.setattr(ports, "remembered", lambda _: taken)
        with start(["postgres", "redis"], say=lambda _: None, environment=_environment()) as stack:
            assert str(taken) not in _url(stack, "postgres") + _url(stack, "redis")


async def test_kept_data_is_there_at_the_next_start(tmp_path: Path) -> None:
    for rows in (1, 2):
        with start(["postgres", "redis"], say=lambda _: None, data=tmp_path, environment=_environment()) as stack:
            connection = await asyncpg.connect(_url(stack, "postgres"))
            await connection.execute("CREATE TABLE IF NOT EXISTS kept (at timestamptz)")
            await connection.execute("INSERT INTO kept VALUES (now())")
            assert await connection.fetchval("SELECT count(*) FROM kept") == rows
            await connection.close()
            with redis.Redis.from_url(_url(stack, "redis")) as client:
                assert client.incr("kept") == rows


def test_an_address_from_the_environment_wins_and_is_not_ours_to_stop() -> None:
    given = {**_environment(), "DATABASE_URL": "postgresql://elsewhere/x"}
    with start(["postgres"], say=lambda _: None, environment=given) as stack:
        assert stack.postgres is not None
        assert (stack.postgres.how, stack.postgres.url) == ("environment", "postgresql://elsewhere/x")
        assert stack.servers == []


def _url(stack: Stack, name: str) -> str:
    return next(service.url for service in stack.services if service.name == name)
