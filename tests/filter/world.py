"""What the filter's tests stand on: a Redis of their own that may be hurt, a clock that obeys, and rows."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from tests.waiting import eventually
from worker.filter.filter import Filter
from worker.rules.claims import State, Status
from worker.rules.entries import Row
from worker.rules.fingerprint import FORMAT
from worker.rules.results import ContentType, Result
from worker.stack import LocalServer

START = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
RESULT = Result(Status.OK, ContentType.JSON, b'{"receipt": "r-1"}')
NO_RESULT = Result(Status.OK, ContentType.NONE, None)


def row(
    result: Result | None = RESULT,
    *,
    id_: bytes | None = None,
    fingerprint: bytes | None = b"f" * 32,
    left: timedelta = timedelta(hours=1),
    state: State = State.COMPLETED,
    format_: int = FORMAT,
    fence: int = 4711,
) -> Row:
    """A completed row that expires `left` after the virtual clock's start."""
    return Row(
        id_ or secrets.token_bytes(16), state, fence, fingerprint, format_, 0, 0, result, None, None, START + left
    )


def asked(rows: Iterable[Row]) -> dict[bytes, bytes | None]:
    """The question to which these rows are the answer."""
    return {one.id: one.fingerprint for one in rows}


@dataclass
class World:
    """One test's ledger, database clock, lease and notices, beside a private Redis."""

    server: LocalServer
    url: str
    ledger: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    now: float = START.timestamp()
    alive: bool = True
    notices: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def events(self, calls: str) -> list[str]:
        return [event for event, fields in self.notices if fields.get("calls") == calls]

    @contextlib.asynccontextmanager
    async def filter(
        self, *, timeout: float = 2.0, url: str | None = None, ledger: bytes | None = None, key: bytes | None = None
    ) -> AsyncIterator[Filter]:
        made = Filter(
            url or self.url,
            timeout=timeout,
            ledger_id=ledger or self.ledger,
            key=key or self.key,
            now=lambda: self.now,
            alive=lambda: self.alive,
            notice=lambda event, **fields: self.notices.append((event, fields)),
        )
        try:
            yield made
        finally:
            await made.close()

    @contextlib.asynccontextmanager
    async def redis(self) -> AsyncIterator[Redis]:
        """A client that looks and meddles behind the filter's back."""
        async with Redis.from_url(self.url) as client:
            yield client

    def redis_key(self, id_: bytes) -> bytes:
        return b"oncebox:" + self.ledger + id_

    async def remembered(self, filter_: Filter, rows: Iterable[Row]) -> Mapping[bytes, Row]:
        """Tell the filter these rows, and wait until it answers with all of them."""
        rows = list(rows)
        filter_.remember(rows)

        async def answer() -> dict[bytes, Row] | None:
            found = await filter_.look_up(asked(rows))
            return found if len(found) == len(rows) else None

        found: dict[bytes, Row] = await eventually(answer, message="remembered rows")
        return found
