"""The database of transactional handlers in memory: statements are recorded, and answers are the author's."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Any] | Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that was executed."""

    query: str
    arguments: tuple[Any, ...]


class MemoryDatabase:
    """What transactional handlers committed, and what their queries are answered with."""

    def __init__(self) -> None:
        self.committed: list[Statement] = []
        self._answers: list[tuple[str, Rows]] = []

    def answer(self, query: str, rows: Rows) -> None:
        """Answer queries that contain this text with these rows, or with what a function of the arguments returns.

        A row is a mapping or a sequence. Later answers come before earlier ones; white space does not matter.
        """
        self._answers.insert(0, (_plain(query), rows))

    def rows(self, statement: Statement) -> list[Any] | None:
        """The rows that answer a statement; None when the author gave none."""
        text = _plain(statement.query)
        for part, rows in self._answers:
            if part in text:
                return list(rows(*statement.arguments) if callable(rows) else rows)
        return None


class MemoryTransaction:
    """Records what a handler executes; it counts only once the completion commits."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self.statements: list[Statement] = []
        self.began: Callable[[], Awaitable[None]] | None = None  # awaited after the first statement

    async def execute(self, query: str, *arguments: Any) -> str:
        """Record the statement; the answer counts the author's rows, or one."""
        rows = await self._record(query, arguments)
        verb = query.split(maxsplit=1)[0].upper() if query.strip() else ""
        count = 1 if rows is None else len(rows)
        return f"{verb} 0 {count}" if verb == "INSERT" else f"{verb} {count}"

    async def executemany(self, query: str, arguments: Sequence[Sequence[Any]]) -> None:
        for each in arguments:
            await self._record(query, tuple(each))

    async def fetch(self, query: str, *arguments: Any) -> list[Any]:
        return await self._fetch(query, arguments)

    async def fetchrow(self, query: str, *arguments: Any) -> Any:
        rows = await self._fetch(query, arguments)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *arguments: Any) -> Any:
        rows = await self._fetch(query, arguments)
        if not rows:
            return None
        return next(iter(rows[0].values())) if hasattr(rows[0], "values") else rows[0][0]

    async def _record(self, query: str, arguments: tuple[Any, ...]) -> list[Any] | None:
        statement = Statement(query, arguments)
        self.statements.append(statement)
        if self.began is not None and len(self.statements) == 1:
            await self.began()
        return self._database.rows(statement)

    async def _fetch(self, query: str, arguments: tuple[Any, ...]) -> list[Any]:
        rows = await self._record(query, arguments)
        if rows is None:
            raise LookupError(f"nobody said what to answer; call database.answer({_plain(query)[:60]!r}, [...]) first")
        return rows


def _plain(query: str) -> str:
    return " ".join(query.split())
