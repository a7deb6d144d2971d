"""Transactional handlers: the effect and the completion commit together, with the fence checked inside."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from asyncpg.pgproto.pgproto import UUID
from asyncpg.transaction import Transaction as Block

from worker.ledger.clock import clock
from worker.ledger.connect import BROKEN, Connection, Line, Lines, unavailable
from worker.ledger.fences import Fences
from worker.ledger.finals import text
from worker.rules.context import Transaction
from worker.rules.results import Result
from worker.rules.writes import Done

Body = Callable[[Transaction], Awaitable[Result]]
# Not AND CHAIN: the next would inherit what the first chose, as isolation. Nothing begins when the commit is refused.
COMMIT_AND_BEGIN = "COMMIT; BEGIN"
_ROLLBACK = 5.0
_FRESH = 0.5  # seconds


class Transactions:
    """Runs handlers inside transactions of their own connections."""

    def __init__(self, lines: Lines, queries: Mapping[str, str], fences: Fences) -> None:
        self._lines = lines
        self._queries = queries
        self._fences = fences
        self._beginning = 0  # commits under way that begin what somebody waits for
        self._begun: dict[Line, _Begun] = {}  # for whoever is given the line next

    async def run(self, id_: bytes, fence: int, body: Body) -> Result | None:
        """Run the body and commit what it did with the completion; None means someone else decided first: rolled back.

        What the body raises is raised after the rollback. `ServiceUnavailable` after the body has ended means that the
        commit may have happened: only a write to the entry can tell.
        """
        asked_at = clock()
        async with self._lines.take() as line:
            connection, block = await self._begin(line, asked_at)
            try:
                result = await body(connection)
            except BaseException as error:
                if isinstance(error, BROKEN) and connection.is_closed():
                    raise unavailable(error) from error
                # Also when it was cancelled: a dropped connection would keep its locks until its statement has ended.
                await self._roll_back(line, block)
                # Raised outside: the connection is in order, and the line need not be dropped.
                failure = error
            else:
                return await self._complete(line, connection, block, Done(id_, fence, result))
        raise failure

    async def _complete(self, line: Line, connection: Connection, block: Block, done: Done) -> Result | None:
        """On the very connection the body wrote through: on another the completion would commit without the effect."""
        try:
            found = await connection.fetch(self._queries["complete_one"], *_arguments(done))
            if found:
                await self._commit(line, connection, block)
        except BROKEN as error:
            line.drop()
            raise unavailable(error) from error
        if not found:
            await self._roll_back(line, block)
        # Either way the claim is over: completed here, or decided by someone else.
        self._fences.closed((done.fence,))
        return done.result if found else None

    async def _commit(self, line: Line, connection: Connection, block: Block) -> None:
        """Commit; when somebody waits for the line, begin what is theirs in the same round trip."""
        if self._lines.waiting <= self._beginning:
            await block.commit()
            return
        self._beginning += 1
        # Its time is that at which the server hears of it, before the commit: later is the answer, not the transaction.
        sent_at = clock()
        try:
            await connection.execute(COMMIT_AND_BEGIN)
        finally:
            self._beginning -= 1
        if self._lines.waiting:
            self._begun[line] = _Begun(connection, block, sent_at)
        else:
            # Whoever waited has given up, or got another line.
            await self._roll_back(line, block)

    async def _begin(self, line: Line, asked_at: float) -> tuple[Connection, Block]:
        begun = self._begun.pop(line, None)
        try:
            connection = await line.connection()
            if begun is not None and begun.connection is connection:
                if begun.at >= asked_at and clock() - begun.at < _FRESH:
                    return connection, begun.block
                # Begun for somebody else, or long ago: what the handler takes for now would be the past, perhaps from
                # before the message ahead of its own was committed.
                await begun.block.rollback()
            return await _start(line)
        except BROKEN:
            line.drop()
        # A connection that died while idle is found out only now; a fresh one shows whether Postgres is away.
        try:
            return await _start(line)
        except BROKEN as error:
            line.drop()
            raise unavailable(error) from error

    async def _roll_back(self, line: Line, block: Block) -> None:
        try:
            async with asyncio.timeout(_ROLLBACK):
                await block.rollback()
        except BROKEN:
            line.drop()


@dataclass(slots=True)
class _Begun:
    """A transaction that nothing was done in yet. To asyncpg it is the block of the one before: that began it."""

    connection: Connection
    block: Block
    at: float


def _arguments(done: Done) -> tuple[object, ...]:
    result = done.result
    code = None if result.code is None else text(result.code)
    return UUID(done.id), done.fence, result.status, result.content_type, result.body, code


async def _start(line: Line) -> tuple[Connection, Block]:
    connection = await line.connection()
    block = connection.transaction()
    await block.start()
    return connection, block
