"""Holding rows, and waiting until somebody waits for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from tests.waiting import eventually

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@asynccontextmanager
async def holding(url: str, statement: str, *arguments: object) -> AsyncIterator[Connection]:
    """Execute a statement in a transaction that stays open; rolled back at the end unless the test committed it."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("BEGIN")
        await connection.fetch(statement, *arguments)
        yield connection
    finally:
        connection.terminate()


async def somebody_waits(admin: Connection, holder: Connection, *, waiters: int = 1) -> list[int]:
    """Return when that many backends wait for locks that the holder has: their process ids."""

    async def blocked() -> list[int] | None:
        rows = await admin.fetch(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND $1 = ANY(pg_blocking_pids(pid))",
            holder.get_server_pid(),
        )
        return [row[0] for row in rows] if len(rows) >= waiters else None

    found: list[int] = await eventually(blocked, message="nobody waits for the lock")
    return found


async def all_wait(admin: Connection, schema: str, waiters: int) -> None:
    """Return when that many statements on this schema wait for locks, whoever has them."""

    async def blocked() -> bool:
        count = await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'",
            schema,
        )
        return bool(count >= waiters)

    await eventually(blocked, message=f"fewer than {waiters} wait")


async def nobody_executes(admin: Connection, pids: list[int]) -> None:
    """Return when these backends have ended what they were doing, or are gone."""

    async def idle() -> bool:
        count = await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1::int[]) AND state <> 'idle'", pids
        )
        return bool(count == 0)

    await eventually(idle, message="a backend is still busy")
