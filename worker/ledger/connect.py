"""Connections to Postgres that come back by themselves, and the line between "broken" and "wrong".

A call that breaks says nothing about its outcome; that is for the caller to settle by a write.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from worker.errors import ServiceUnavailable
from worker.settings import DatabaseSettings

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Connect = Callable[[], Awaitable[Connection]]

# Look-ups and joins on the hot path go by primary key, whatever the statistics of a fresh or truncated table say.
HOT: Mapping[str, str] = {
    f"enable_{name}": "off" for name in ("hashjoin", "mergejoin", "seqscan", "bitmapscan", "material")
}
BROKEN = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # 57xxx: shutdown, crash, cannot connect now, statement timeout
    asyncpg.TransactionRollbackError,  # 40xxx: deadlock, serialization
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,  # a connection that outlived its primary
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalServerError,  # a distributed Postgres says XX000 when a node goes away
    asyncpg.InvalidCachedStatementError,
    asyncpg.TooManyConnectionsError,
)


def connector(
    settings: DatabaseSettings, *, role: str, planner: Mapping[str, str] | None = None, idle_limit: float | None = None
) -> Connect:
    """How to open one connection for a role; only a primary is accepted."""
    milliseconds = int(settings.statement_timeout.total_seconds() * 1000)
    server = {
        "application_name": f"oncebox {role}",
        "synchronous_commit": "on",
        "statement_timeout": str(milliseconds),
        "lock_timeout": str(milliseconds),
        "jit": "off",
        "idle_in_transaction_session_timeout": str(int((idle_limit or 60) * 1000)),
        **(planner or {}),
    }

    async def connect() -> Connection:
        return await asyncpg.connect(
            settings.url.get_secret_value(),
            timeout=settings.connect_timeout.total_seconds(),
            command_timeout=settings.statement_timeout.total_seconds() + 5,
            server_settings=server,
            target_session_attrs=SessionAttribute.read_write,
        )

    return connect


class Line:
    """One connection, opened when needed, thrown away whenever a call broke. One caller at a time."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement; `ServiceUnavailable` means its outcome is unknown."""
        try:
            connection = self._connection or await self.connection()
            return await connection.fetch(query, *arguments)
        except BROKEN as error:
            await self.drop()
            raise unavailable(error) from error

    async def fetchval(self, query: str, *arguments: Any) -> Any:
        rows = await self.fetch(query, *arguments)
        return rows[0][0] if rows else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Several statements that commit together; `ServiceUnavailable` means the outcome of all is unknown."""
        try:
            connection = await self.connection()
            async with connection.transaction():
                yield connection
        except BROKEN as error:
            await self.drop()
            raise unavailable(error) from error

    async def drop(self) -> None:
        """Forget the connection without waiting for a server that may not answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*BROKEN):
                await connection.close(timeout=2)

    async def connection(self) -> Connection:
        """The open connection, or a new one."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection


class Lines:
    """A few lines shared by callers that wait for a free one."""

    def __init__(self, connect: Connect, size: int) -> None:
        self._all = [Line(connect) for _ in range(size)]
        self._free: asyncio.Queue[Line] = asyncio.Queue()
        for line in self._all:
            self._free.put_nowait(line)

    @asynccontextmanager
    async def take(self) -> AsyncIterator[Line]:
        line = await self._free.get()
        try:
            yield line
        except BaseException:
            # Cancelled or failed in the middle of a statement: the connection may still be busy with it.
            await line.drop()
            raise
        finally:
            self._free.put_nowait(line)

    async def close(self) -> None:
        for line in self._all:
            await line.close()


def unavailable(error: BaseException) -> ServiceUnavailable:
    return ServiceUnavailable("postgres", f"Postgres did not answer: {type(error).__name__}: {error}")
