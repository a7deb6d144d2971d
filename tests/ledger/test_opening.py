"""What is open before the first record comes."""

from tests.ledger.conftest import OpenLedger, Schema
from worker.ledger.connect import Lines, connector
from worker.settings import DatabaseSettings


async def test_claims_find_their_connections_open(open_ledger: OpenLedger, ledger_schema: Schema) -> None:
    role = f"opening {ledger_schema.name}"
    ledger = await open_ledger(role=role, limits={"hot_connections": 3})
    await ledger.register((), group="g", identities={})
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
    assert await ledger_schema.value(query, f"oncebox {role}") == 3


async def test_a_line_that_cannot_be_opened_ahead_is_opened_when_it_is_needed(ledger_schema: Schema) -> None:
    away = DatabaseSettings(url="postgresql://nobody@127.0.0.1:1/none", schema_name=ledger_schema.name)
    found = [connector(away, role="opening"), connector(ledger_schema.settings(), role="opening")]

    async def connect() -> object:
        return await found.pop(0)()

    lines = Lines(connect, 1)  # type: ignore[arg-type]
    await lines.open("SELECT 1")
    async with lines.take() as line:
        assert await line.fetchval("SELECT 1") == 1
    await lines.close()
