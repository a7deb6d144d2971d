"""Workers without threads: a session that is only a row, a memory that can be lost, calls that lose their answers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from worker.errors import ServiceUnavailable
from worker.ledger.claims import Claims
from worker.ledger.connect import HOT, Connection, Line, Lines, connector
from worker.ledger.fences import LIFETIME, Fences
from worker.ledger.finals import Finals
from worker.ledger.queries import in_schema, load_queries
from worker.ledger.sessions import Session
from worker.ledger.settling import Settling
from worker.settings import DatabaseSettings

LEASE = 600.0
T = TypeVar("T")


class LossyLine(Line):
    """Loses a request or an answer when it is told to: of the next call, or of one after that."""

    lose: str | None = None
    after = 0

    def _loss(self) -> str | None:
        if self.after:
            self.after -= 1
            return None
        lose, self.lose = self.lose, None
        return lose

    async def _run(self, call: Callable[..., Awaitable[T]], query: str, arguments: Sequence[Any]) -> T:
        lose = self._loss()
        if lose == "request":
            raise ServiceUnavailable("postgres", "lost on the way there")
        answer = await super()._run(call, query, arguments)
        if lose == "answer":
            raise ServiceUnavailable("postgres", "lost on the way back")
        return answer

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        lose = self._loss()
        if lose == "request":
            raise ServiceUnavailable("postgres", "lost on the way there")
        async with super().transaction() as tx:
            yield tx
        if lose == "answer":
            raise ServiceUnavailable("postgres", "lost on the way back")


class Seat:
    """Where one worker sits; whoever sits down there anew remembers nothing."""

    def __init__(self, settings: DatabaseSettings, number: int) -> None:
        self.number = number
        self._schema = settings.schema_name
        self.queries = load_queries(settings.schema_name)
        self._connect = connector(settings, role=f"seat {number}", options=HOT)
        self.line = LossyLine(self._connect)
        self.memory: dict[str, int] = {}
        self.late = 0.0

    async def sit_down(self) -> None:
        """A new process: no memory, no fences, a session of its own."""
        self.line.lose, self.line.after = None, 0
        lines = Lines(self._connect, 1)
        lines._all = [self.line]
        lines._free = [self.line]
        self.memory = {}
        self.fences = Fences(lambda: self.late)
        self.session = Session(
            self._connect, self.queries, lease=LEASE, role="test", held=self.fences.held, notice=_nothing
        )
        self.claims = Claims(lines, self.queries, self.session, self.fences, crash_cap=6, notice=_nothing)
        self.finals = Finals(lines, self.queries, self.fences, lease=LEASE, first_probe=1.0, notice=_nothing)
        self.settling = Settling(lines, self.queries, self.session, first_probe=1.0, notice=_nothing)
        await self.open_session()

    async def open_session(self) -> int:
        arguments = ("test", "here", 1, "0", LEASE)
        self.session.id = await self.line.fetchval(self.queries["open_session"], *arguments)
        await self.be_steady()
        return self.session.id

    async def be_steady(self) -> None:
        """Let the session have been steady for long enough to end others."""
        await self.line.fetch(
            in_schema("UPDATE oncebox.sessions SET steady_since = now() - 2 * lease WHERE id = $1", self._schema),
            self.session.id,
        )

    async def carry_over(self) -> None:
        ended = self.session.id
        await self.line.fetch(self.queries["carry_over"], ended, await self.open_session())

    async def release_strays(self) -> None:
        rows = await self.line.fetch(self.queries["open_fences"], self.session.id)
        ids = {row["fence"]: row["ids"] for row in rows}
        strays = self.fences.strays(ids)
        for fence in strays:
            await self.line.fetch(self.queries["release"], sorted(ids[fence]), [fence] * len(ids[fence]))
        await self.line.fetch(self.queries["forget_open_claims"], strays)

    def much_later(self) -> None:
        """So much time passes that every block of fences is stale."""
        self.late += LIFETIME + 1


def _nothing(event: str, **fields: Any) -> None:
    return None
