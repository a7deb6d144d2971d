"""Postgres and Redis: where they are, how many connections, how long to wait."""

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field, SecretStr

from worker.settings.group import Group
from worker.settings.values import Duration, Identifier, between, env, url_of

PostgresUrl = Annotated[
    SecretStr, url_of("postgresql", "postgres", example="postgresql://user:password@host:5432/name")
]
RedisUrl = Annotated[SecretStr, url_of("redis", "rediss", "unix", example="redis://host:6379/0, or rediss:// for TLS")]


class DatabaseSettings(Group):
    """Postgres decides; without it nothing runs."""

    url: Annotated[PostgresUrl, env("DATABASE_URL")]
    """Secret. TLS by its query: sslmode=verify-full&sslrootcert=/path/ca.pem. Point it at the primary."""

    schema_name: Annotated[Identifier, env("ONCEBOX_SCHEMA")] = "oncebox"
    """The schema of our tables. Another name is another ledger: it remembers nothing of the first."""

    hot_connections: Annotated[int, Field(ge=1, le=100)] = 4
    """For claims, look-ups and completions. More: little gain, more load. Fewer: batches wait for one another."""

    transaction_connections: Annotated[int, Field(ge=1, le=1000)] = 16
    """Transactional handlers running at once, beside others. More: more backends on the server. Fewer: those wait."""

    statement_timeout: Annotated[Duration, between("100ms", "10m")] = timedelta(seconds=10)
    """Longer: a stuck server is noticed later. Shorter: a busy server's answers are thrown away and asked for again."""

    connect_timeout: Annotated[Duration, between("100ms", "5m")] = timedelta(seconds=5)
    """Longer: an unreachable server is noticed later. Shorter: a slow network or TLS handshake looks like an outage."""


class RedisSettings(Group):
    """Redis only saves work; without it everything is right, and duplicates cost a little more."""

    env_prefix: ClassVar[str] = "ONCEBOX_REDIS_"

    url: Annotated[RedisUrl | None, env("REDIS_URL")] = None
    """Secret. Unset: no filter, every duplicate is answered by Postgres."""

    timeout: Annotated[Duration, between("5ms", "10s")] = timedelta(milliseconds=100)
    """Longer: a slow Redis slows the worker. Shorter: more duplicates go to Postgres."""
