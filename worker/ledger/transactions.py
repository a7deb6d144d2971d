"""Transactional handlers: the effect and the completion commit together, with the fence checked inside."""

from collections.abc import Awaitable, Callable, Mapping

from asyncpg.pgproto.pgproto import UUID
from asyncpg.transaction import Transaction as Block

from worker.ledger.connect import BROKEN, Connection, Line, Lines, unavailable
from worker.ledger.fences import Fences
from worker.rules.context import Transaction
from worker.rules.results import Result

Body = Callable[[Transaction], Awaitable[Result]]


class Transactions:
    """Runs handlers inside transactions of their own connections."""

    def __init__(self, lines: Lines, queries: Mapping[str, str], fences: Fences) -> None:
        self._lines = lines
        self._queries = queries
        self._fences = fences

    async def run(self, id_: bytes, fence: int, body: Body) -> Result | None:
        """Run the body and commit what it did with the completion; None means someone else decided first: rolled back.

        What the body raises is raised after the rollback. `ServiceUnavailable` after the body has ended means that the
        commit may have happened: only a write to the entry can tell.
        """
        async with self._lines.take() as line:
            connection, block = await self._begin(line)
            try:
                result = await body(connection)
            except BaseException as error:
                await self._roll_back(line, block)
                if isinstance(error, BROKEN) and connection.is_closed():
                    raise unavailable(error) from error
                raise
            try:
                found = await connection.fetch(
                    self._queries["complete"],
                    [UUID(id_)],
                    [fence],
                    [result.status],
                    [result.content_type],
                    [result.body],
                    [result.code],
                )
                if not found:
                    await self._roll_back(line, block)
                    return None
                await block.commit()
            except BROKEN as error:
                await line.drop()
                raise unavailable(error) from error
            self._fences.closed((fence,))
            return result

    async def _begin(self, line: Line) -> tuple[Connection, Block]:
        try:
            return await _start(line)
        except BROKEN:
            await line.drop()
        # A connection that died while idle is found out only now; a fresh one shows whether Postgres is away.
        try:
            return await _start(line)
        except BROKEN as error:
            await line.drop()
            raise unavailable(error) from error

    async def _roll_back(self, line: Line, block: Block) -> None:
        try:
            await block.rollback()
        except BROKEN:
            await line.drop()


async def _start(line: Line) -> tuple[Connection, Block]:
    connection = await line.connection()
    block = connection.transaction()
    await block.start()
    return connection, block
