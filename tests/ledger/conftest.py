"""Ledgers of several workers on one schema."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from tests.ledger.locks import Connection
from tests.ledger.offers import id_of
from tests.ledger.wire import Wire, wire_to
from worker.ledger.ledger import PostgresLedger
from worker.ledger.migrate import migrate
from worker.ledger.novelty import Novelty
from worker.settings import DatabaseSettings


@dataclass
class Notices:
    """What a ledger said."""

    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.said if name == event]


@dataclass
class Schema:
    """One migrated schema, seen from outside by an administrator."""

    url: str
    name: str
    admin: Connection

    def settings(self, url: str | None = None, **options: Any) -> DatabaseSettings:
        return DatabaseSettings(url=url or self.url, schema_name=self.name, **options)

    def sql(self, text: str) -> str:
        return text.replace("oncebox.", f'"{self.name}".')

    async def execute(self, text: str, *arguments: Any) -> str:
        return await self.admin.execute(self.sql(text), *arguments)

    async def fetch(self, text: str, *arguments: Any) -> list[asyncpg.Record]:
        return await self.admin.fetch(self.sql(text), *arguments)

    async def value(self, text: str, *arguments: Any) -> Any:
        return await self.admin.fetchval(self.sql(text), *arguments)

    async def entry(self, key: str) -> asyncpg.Record:
        row = await self.admin.fetchrow(self.sql("SELECT * FROM oncebox.entries WHERE id = $1"), id_of(key))
        assert row is not None, f"there is no entry for {key}"
        return row

    async def let_lapse(self, session: int) -> None:
        await self.execute("UPDATE oncebox.sessions SET lease_until = clock_timestamp() - lease WHERE id = $1", session)

    async def steady(self, session: int) -> None:
        """Let the session have been steady for longer than its lease."""
        await self.execute(
            "UPDATE oncebox.sessions SET steady_since = clock_timestamp() - 2 * lease WHERE id = $1", session
        )

    async def end(self, session: int) -> None:
        """End a session as another worker would, without waiting for its lease."""
        await self.execute(
            "UPDATE oncebox.sessions SET ended_at = clock_timestamp()"
            " WHERE id = (SELECT id FROM oncebox.sessions WHERE id = $1 FOR UPDATE)",
            session,
        )


OpenLedger = Callable[..., Awaitable[PostgresLedger]]


@pytest.fixture
async def ledger_schema(database_url: str, schema: str) -> AsyncIterator[Schema]:
    admin = await asyncpg.connect(database_url)
    # Entry ids are written as 16 bytes here, as everywhere outside SQL.
    await admin.set_type_codec("uuid", encoder=lambda value: value, decoder=bytes, schema="pg_catalog", format="binary")
    found = Schema(database_url, schema, admin)
    await migrate(found.settings())
    yield found
    with suppress(OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
        await admin.close(timeout=2)


@pytest.fixture
def notices() -> Notices:
    return Notices()


def make_ledger(settings: DatabaseSettings, notice: Callable[..., None], **options: Any) -> PostgresLedger:
    wanted = {"lease": 30.0, "crash_cap": 3, "longest_timeout": 5.0, "first_probe": 10.0, **options}
    return PostgresLedger(settings, notice=notice, **wanted)


class AlwaysNew(Novelty):
    """Expects new keys even after it was wrong."""

    expected = True


@pytest.fixture
def all_new() -> bool:
    """Whether claims expect all keys to be new; a test that must hold either way is run with both."""
    return False


EITHER_WAY = pytest.mark.parametrize("all_new", [False, True], ids=["expecting anything", "expecting new keys"])


@pytest.fixture
async def open_ledger(ledger_schema: Schema, notices: Notices, all_new: bool) -> AsyncIterator[OpenLedger]:
    """`await open_ledger()` is one more worker's ledger; `url=` sends it through a wire."""
    opened: list[PostgresLedger] = []

    async def open_one(url: str | None = None, *, limits: dict[str, Any] | None = None, **more: Any) -> PostgresLedger:
        ledger = make_ledger(ledger_schema.settings(url, **(limits or {})), notices, **more)
        opened.append(ledger)
        if all_new:
            ledger.claims._novelty = AlwaysNew()
        await ledger.open()
        return ledger

    yield open_one
    for ledger in opened:
        await ledger.close()


async def stop_renewing(ledger: PostgresLedger) -> None:
    """The worker's thread is gone, as after a kill: its session stays open until someone ends it."""
    ledger.queries["close_session"] = "SELECT $1::bigint WHERE false"
    await ledger.session.close()


@pytest.fixture
async def ledger(open_ledger: OpenLedger) -> PostgresLedger:
    return await open_ledger()


@pytest.fixture
async def wire(database_url: str) -> AsyncIterator[Wire]:
    async with wire_to(database_url) as one:
        yield one
