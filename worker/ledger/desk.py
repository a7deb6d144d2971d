"""The operator's desk: one connection for commands that look and decide, without a session or a claim of their own."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from worker.ledger.connect import IN_ORDER, Line, connector
from worker.ledger.migrate import refuse_stale_schema
from worker.ledger.queries import load_queries
from worker.settings import DatabaseSettings


@dataclass(frozen=True, slots=True)
class Desk:
    """A connection and the named queries."""

    line: Line
    queries: Mapping[str, str]


@asynccontextmanager
async def open_desk(settings: DatabaseSettings, *, options: Mapping[str, str] = IN_ORDER) -> AsyncIterator[Desk]:
    """Open a desk at a ledger whose schema is up to date."""
    await refuse_stale_schema(settings)
    line = Line(connector(settings, role="operator", options=options))
    try:
        yield Desk(line, load_queries(settings.schema_name))
    finally:
        await line.close()
