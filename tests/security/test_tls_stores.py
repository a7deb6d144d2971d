"""Postgres and Redis over TLS, by their URLs alone, through a proxy that adds it."""

import asyncio
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from tests.security.certificates import Authority, Pair
from tests.security.proxy import tls_proxy
from worker.errors import ConfigError, OnceboxError, ServiceUnavailable
from worker.filter.probe import ping
from worker.ledger.explain import explain_database_error
from worker.settings import RedisSettings, load_settings


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("stores", "localhost")


def through(url: str, port: int, *, host: str = "localhost", scheme: str | None = None, query: str = "") -> str:
    """The same URL by way of the proxy."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    place = f"{login}@{host}:{port}" if login else f"{host}:{port}"
    return urlunsplit((scheme or parts.scheme, place, parts.path, query, ""))


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


async def encrypted(url: str) -> bool:
    """Connect as the ledger does, by the URL that the settings hold; True when the client's side is TLS."""
    settings = load_settings(environ={"DATABASE_URL": url})
    connection = await asyncpg.connect(settings.database.url.get_secret_value(), timeout=5)
    try:
        assert await connection.fetchval("SELECT 1") == 1
        transport: asyncio.Transport = getattr(connection, "_transport")  # noqa: B009 - its types hide it
        return transport.get_extra_info("sslcontext") is not None
    finally:
        await connection.close()


async def database_error(url: str) -> OnceboxError:
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)) as caught:
        await encrypted(url)
    return explain_database_error(caught.value, url)


async def test_postgres_is_verified_in_full_by_its_url(database_url: str, authority: Authority, pair: Pair) -> None:
    query = f"sslmode=verify-full&sslrootcert={authority.file}"
    async with tls_proxy(address(database_url), pair, postgres=True) as port:
        assert await encrypted(through(database_url, port, query=query))
        assert not await encrypted(database_url)


async def test_a_postgres_with_another_authority_or_name_is_refused(
    database_url: str, authority: Authority, stranger: Authority, pair: Pair
) -> None:
    async with tls_proxy(address(database_url), pair, postgres=True) as port:
        for host, trusted in (("localhost", stranger.file), ("127.0.0.1", authority.file)):
            query = f"sslmode=verify-full&sslrootcert={trusted}"
            error = await database_error(through(database_url, port, host=host, query=query))
            assert isinstance(error, ConfigError)
            assert "is not trusted" in str(error)
            assert "sslrootcert" in str(error)


async def test_a_postgres_without_tls_is_named(database_url: str) -> None:
    error = await database_error(through(database_url, address(database_url)[1], query="sslmode=require"))
    assert isinstance(error, ConfigError)
    assert "does not speak TLS" in str(error)


async def test_redis_is_verified_by_its_url(redis_url: str, authority: Authority, pair: Pair) -> None:
    async with tls_proxy(address(redis_url), pair) as port:
        url = through(redis_url, port, scheme="rediss", query=f"ssl_ca_certs={authority.file}")
        assert (await ping(RedisSettings(url=url))).total_seconds() < 2


async def test_a_redis_with_another_authority_or_name_is_refused(
    redis_url: str, authority: Authority, stranger: Authority, pair: Pair
) -> None:
    async with tls_proxy(address(redis_url), pair) as port:
        for host, trusted in (("localhost", stranger.file), ("127.0.0.1", authority.file)):
            query = f"ssl_ca_certs={trusted}"
            with pytest.raises(ConfigError, match="is not trusted") as caught:
                await ping(RedisSettings(url=through(redis_url, port, host=host, scheme="rediss", query=query)))
            assert str(urlsplit(redis_url).password) not in str(caught.value)


async def test_a_redis_is_explained(redis_url: str, authority: Authority, pair: Pair) -> None:
    parts = urlsplit(redis_url)
    with pytest.raises(ConfigError, match="refused the login"):
        await ping(RedisSettings(url=f"redis://:hunter2@{parts.hostname}:{parts.port}/0"))
    with pytest.raises(ConfigError, match="refused the login"):
        await ping(RedisSettings(url=f"redis://{parts.hostname}:{parts.port}/0"))
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        await ping(RedisSettings(url="redis://127.0.0.1:1/0"))
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        await ping(RedisSettings(url=through(redis_url, address(redis_url)[1], scheme="rediss")))
