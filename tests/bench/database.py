"""A schema for each run: made before it, counted after it, dropped in the end."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import asyncpg

from tests.bench.contenders import ENTRIES, Contender
from tests.bench.contenders.inserting import TABLE as ORDERS
from worker.ledger.migrate import migrate
from worker.settings import load_settings

# Entries as a worker leaves them: results of a few bytes, keys of twenty.
_ROWS = """
INSERT INTO "{schema}".entries (fence, expires_at, source_offset, operation, source_topic, source_partition, state,
                                kind, result_status, content_type, format, id, fingerprint, key, result)
SELECT n / 500, clock_timestamp() + $3::interval, n, $4, 0, n % 8, 2, 1, 1, 1, 1, gen_random_uuid(),
       sha256(int8send(n)), convert_to('old-' || lpad(n::text, 16, '0'), 'UTF8'), '\\x7b7d'
  FROM generate_series($1::bigint, $2::bigint - 1) n
"""
_ROWS_AT_ONCE = 500_000
_KEPT, _EXPIRED = timedelta(days=7), timedelta(days=-3)
# The first that is registered, and one that never is.
_FIRST, _NONE = 1, 0


class Database:
    """The Postgres of the stack."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextlib.contextmanager
    def schema_for(self, contender: Contender, *, rows: int = 0, expired: int = 0) -> Iterator[str]:
        """A fresh schema; what earlier runs left to write is written before. Ours has its tables, and old entries.

        These are another operation's, but if some have expired all are those of the one that will be registered.
        """
        name = f"bench_{secrets.token_hex(4)}"
        try:
            asyncio.run(self._make(name, contender, rows, expired))
            yield name
        finally:
            asyncio.run(self._drop(name))

    def settle(self, schema: str) -> None:
        """Let the server do now what earlier runs left it to do: it would do it, and be charged, during the next."""
        asyncio.run(self._settle(schema))

    def complete_rest(self, schema: str, prefix: str, messages: int) -> None:
        """Complete, in the simple table, the keys that a slow contender was not asked to work through."""
        asyncio.run(self._complete_rest(schema, prefix, messages))

    def completed(self, schema: str, contender: Contender) -> int:
        """How many keys the contender has completed, by its own table."""
        if contender.completed is None:
            return 0
        return int(asyncio.run(self._value(contender.completed.format(schema=schema))))

    def settings(self) -> dict[str, str]:
        """What of the server's configuration decides the numbers."""
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size")
        return {name: str(asyncio.run(self._value(f"SHOW {name}"))) for name in names}

    async def _make(self, name: str, contender: Contender, rows: int, expired: int) -> None:
        if contender.completed == ENTRIES or contender.command[0] in ("ours", "pruned"):
            await migrate(load_settings(environ={"DATABASE_URL": self.url, "ONCEBOX_SCHEMA": name}).database)
        async with self._connection() as connection:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
            await connection.execute(ORDERS.format(schema=name))
            operation = _FIRST if expired else _NONE
            for count, expiry in ((rows, _KEPT), (expired, _EXPIRED)):
                for first in range(0, count, _ROWS_AT_ONCE):
                    last = min(count, first + _ROWS_AT_ONCE)
                    await connection.execute(_ROWS.format(schema=name), first, last, expiry, operation)
        await self._settle(name if rows else None)

    async def _complete_rest(self, schema: str, prefix: str, messages: int) -> None:
        async with self._connection() as connection:
            await connection.execute(
                f"""INSERT INTO "{schema}".processed (key, status, result)
                SELECT $1::text || lpad(n::text, 8, '0'), 2, '' FROM generate_series(0, $2::int - 1) n
                ON CONFLICT DO NOTHING""",
                prefix,
                messages,
            )

    async def _settle(self, schema: str | None) -> None:
        async with self._connection() as connection:
            for (table,) in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema):
                await connection.execute(f'VACUUM ANALYZE "{schema}"."{table}"')
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
