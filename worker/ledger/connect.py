"""Connections to Postgres that come back by themselves, and the line between "broken" and "wrong".

A call that breaks says nothing about its outcome; that is for the caller to settle by a write.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from worker.errors import ServiceUnavailable
from worker.ledger.clock import clock
from worker.settings import DatabaseSettings

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Connect = Callable[[], Awaitable[Connection]]
# Told of every round trip: the statement's text, seconds, and whether it broke.
Watch = Callable[[str, float, bool], None]
TRANSACTION = "transaction"
CONNECT = "connect"
T = TypeVar("T")

# Every statement of ours counts on seeing, after it waited for a lock, what was committed meanwhile.
RARE: Mapping[str, str] = {"default_transaction_isolation": "read committed"}
# Look-ups and joins on the hot path go by primary key, whatever the statistics of a fresh or truncated table say.
HOT: Mapping[str, str] = {
    **RARE,
    **{f"enable_{name}": "off" for name in ("hashjoin", "mergejoin", "seqscan", "bitmapscan", "material")},
    # One plan for few keys and for many: for few the server would plan each call anew, a quarter of a small completion.
    "plan_cache_mode": "force_generic_plan",
}
# A prune, or an operator's list, walks its index in order, whatever the statistics say: they may believe that next to
# nothing has expired, and then each small batch would read and sort all of it.
IN_ORDER: Mapping[str, str] = {**RARE, "enable_seqscan": "off", "enable_bitmapscan": "off"}
BROKEN = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # among them: the only server that answers is a read-only standby
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # 57xxx: shutdown, crash, cannot connect now, statement timeout
    asyncpg.TransactionRollbackError,  # 40xxx: deadlock, serialization
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,  # a connection that outlived its primary
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.InternalServerError,  # a distributed Postgres says XX000 when a node goes away
    asyncpg.InvalidCachedStatementError,
    asyncpg.InvalidSQLStatementNameError,  # a pooler in between gave us a backend that never heard of our statements
)


def connector(
    settings: DatabaseSettings,
    *,
    role: str,
    options: Mapping[str, str] | None = None,
    limit: float | None = None,
    answer_within: float | None = None,
    idle_limit: float = 60.0,
) -> Connect:
    """How to open one connection for a role; only a primary is accepted.

    `limit` is for a statement at the server (0: none), `answer_within` for its answer here: the server may be unable to
    tell us anything. `options` are settings of the server for this connection.
    """
    limit = settings.statement_timeout.total_seconds() if limit is None else limit
    answer_within = answer_within or (limit + 5 if limit else None)
    milliseconds = str(int(limit * 1000))
    server = {
        "application_name": f"oncebox {role}",
        "synchronous_commit": "on",
        "statement_timeout": milliseconds,
        "lock_timeout": milliseconds,
        "jit": "off",
        "idle_in_transaction_session_timeout": str(int(idle_limit * 1000)),
        **(options or {}),
    }

    async def connect() -> Connection:
        return await asyncpg.connect(
            settings.url.get_secret_value(),
            timeout=min(settings.connect_timeout.total_seconds(), answer_within or math.inf),
            command_timeout=answer_within,
            server_settings=server,
            target_session_attrs=SessionAttribute.read_write,
        )

    return connect


class Line:
    """One connection, opened when needed, thrown away whenever a call broke. One caller at a time."""

    def __init__(self, connect: Connect, watch: Watch | None = None) -> None:
        self._connect = connect
        self._watch = watch or _unwatched
        self._connection: Connection | None = None

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement; `ServiceUnavailable` means its outcome is unknown."""
        return await self._run(asyncpg.Connection.fetch, query, arguments)

    async def write(self, query: str, *arguments: Any) -> int:
        """Run one statement that returns no rows; how many it wrote. As with `fetch`, its outcome may stay unknown."""
        status = await self._run(asyncpg.Connection.execute, query, arguments)
        return int(status.rpartition(" ")[2])

    async def fetchval(self, query: str, *arguments: Any) -> Any:
        rows = await self.fetch(query, *arguments)
        return rows[0][0] if rows else None

    async def _run(self, call: Callable[..., Awaitable[T]], query: str, arguments: Sequence[Any]) -> T:
        connection = await self.connection()
        began = clock()
        try:
            answer = await call(connection, query, *arguments)
        except BROKEN as error:
            self.drop()
            self._watch(query, clock() - began, True)
            raise unavailable(error) from error
        except asyncpg.PostgresError:
            # An answer, too.
            self._watch(query, clock() - began, False)
            raise
        self._watch(query, clock() - began, False)
        return answer

    async def prepare(self, queries: Iterable[str]) -> None:
        """Open the connection and learn the types of these statements, without running them."""
        connection = await self.connection()
        try:
            for query in queries:
                await connection.prepare(query)
        except BROKEN as error:
            self.drop()
            raise unavailable(error) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Several statements that commit together; `ServiceUnavailable` means the outcome of all is unknown."""
        connection = await self.connection()
        block = connection.transaction()
        began = clock()
        try:
            await block.start()
            yield connection
            await block.commit()
        except BaseException as error:
            # The server rolls back what it was not told to commit; asking it to could take as long as the failure did.
            self.drop()
            if isinstance(error, BROKEN):
                self._watch(TRANSACTION, clock() - began, True)
                raise unavailable(error) from error
            raise
        self._watch(TRANSACTION, clock() - began, False)

    def drop(self) -> None:
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
        """The open connection, or a new one; whatever keeps us from it may be over at the next try."""
        connection = self._connection
        if connection is None or connection.is_closed():
            began = clock()
            try:
                connection = self._connection = await self._connect()
            except (*BROKEN, asyncpg.PostgresError) as error:
                self._watch(CONNECT, clock() - began, True)
                raise unavailable(error) from error
            self._watch(CONNECT, clock() - began, False)
        return connection


class Lines:
    """A few lines shared by callers that wait for a free one, each served in the order in which they asked.

    A line is handed on to whoever waits longest: one that was merely put down would be taken up again at once by the
    task that had it, and under load those who wait would wait for ever.
    """

    def __init__(self, connect: Connect, size: int, watch: Watch | None = None) -> None:
        self._all = [Line(connect, watch) for _ in range(size)]
        self._free = list(self._all)
        self._waiting: deque[asyncio.Future[Line]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for a line; nobody while one is free."""
        return len(self._waiting)

    async def open(self, *queries: str) -> None:
        """Open every line ahead, and let it learn the types of these statements: the first calls need not.

        Both take longer than a statement does, on every connection anew. A line that cannot be opened now is opened
        when it is needed.
        """
        answers = await asyncio.gather(*(line.prepare(queries) for line in self._all), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ServiceUnavailable):
                raise answer

    def take(self) -> "Turn":
        """A line of one's own for a while; waits for a free one as long as that takes."""
        return Turn(self)

    async def take_up(self) -> Line:
        return self._free.pop() if self._free else await self._wait()

    async def _wait(self) -> Line:
        turn: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # Cancelled in the moment between being given the line and taking it.
                self.hand_on(turn.result())
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def hand_on(self, line: Line) -> None:
        """Give the line to whoever waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(line)
                return
        self._free.append(line)

    async def close(self) -> None:
        for line in self._all:
            await line.close()


class Turn:
    """The time for which somebody has a line."""

    __slots__ = ("_line", "_lines")

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    async def __aenter__(self) -> Line:
        self._line = await self._lines.take_up()
        return self._line

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            # Cancelled or failed in the middle of a statement: the connection may still be busy with it.
            self._line.drop()
        self._lines.hand_on(self._line)


def _unwatched(statement: str, seconds: float, broke: bool) -> None:
    pass


def unavailable(error: BaseException) -> ServiceUnavailable:
    return ServiceUnavailable("postgres", f"Postgres did not answer: {type(error).__name__}: {error}")
