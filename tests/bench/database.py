"""A schema for each run: made before it, counted after it, dropped in the end."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import asyncpg

from tests.bench.contenders import Contender
from worker.ledger.migrate import migrate
from worker.settings import load_settings

_TABLE = """
CREATE TABLE "{schema}".processed (
  key text PRIMARY KEY, status smallint NOT NULL, result bytea, at timestamptz NOT NULL DEFAULT now()
)
"""


class Database:
    """The Postgres of the stack."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextlib.contextmanager
    def schema_for(self, contender: Contender) -> Iterator[str]:
        """A fresh schema with what the contender needs; what earlier runs left to write is written before."""
        name = f"bench_{secrets.token_hex(4)}"
        try:
            asyncio.run(self._make(name, contender))
            yield name
        finally:
            asyncio.run(self._drop(name))

    def complete_rest(self, schema: str, prefix: str, messages: int) -> None:
        """Complete, in the simple table, the keys that a slow contender was not asked to work through."""
        asyncio.run(self._complete_rest(schema, prefix, messages))

    def completed(self, schema: str, contender: Contender) -> int:
        """How many keys the contender has completed, by its own table."""
        query = {
            "entries": f'SELECT count(*) FROM "{schema}".entries WHERE state = 2',
            "processed": f'SELECT count(*) FROM "{schema}".processed WHERE status = 2',
            "nothing": "SELECT 0",
        }[contender.remembers]
        return int(asyncio.run(self._value(query)))

    def settings(self) -> dict[str, str]:
        """What of the server's configuration decides the numbers."""
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size")
        return {name: str(asyncio.run(self._value(f"SHOW {name}"))) for name in names}

    async def _make(self, name: str, contender: Contender) -> None:
        if contender.remembers == "entries":
            await migrate(load_settings(environ={"DATABASE_URL": self.url, "ONCEBOX_SCHEMA": name}).database)
        async with self._connection() as connection:
            if contender.remembers == "processed":
                await connection.execute(f'CREATE SCHEMA "{name}"')
                await connection.execute(_TABLE.format(schema=name))
            await self._settle(connection)

    async def _complete_rest(self, schema: str, prefix: str, messages: int) -> None:
        async with self._connection() as connection:
            await connection.execute(
                f"""INSERT INTO "{schema}".processed (key, status, result)
                SELECT $1::text || lpad(n::text, 8, '0'), 2, '' FROM generate_series(0, $2::int - 1) n
                ON CONFLICT DO NOTHING""",
                prefix,
                messages,
            )
            await self._settle(connection)

    async def _settle(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
            await connection.execute("CHECKPOINT")

    async def _drop(self, name: str) -> None:
        async with self._connection() as connection:
            await connection.execute("SET client_min_messages = error")
            await connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')

    async def _value(self, query: str) -> Any:
        async with self._connection() as connection:
            return await connection.fetchval(query)

    @contextlib.asynccontextmanager
    async def _connection(self) -> Any:
        connection = await asyncpg.connect(self.url, timeout=10)
        try:
            yield connection
        finally:
            await connection.close()
