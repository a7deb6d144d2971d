"""The hot statements go by primary key, on a fresh table and on a full one, however often they were planned."""

import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.offers import done, failed, id_of, offers, ok, released
from tests.waiting import eventually
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind
from worker.rules.context import Transaction
from worker.rules.results import Result

BATCH = 500
# Past the switch to a generic plan, which comes after five executions.
ROUNDS = 7


async def scans(schema: Schema, table: str = "entries") -> int:
    found: int = await schema.value(
        "SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = $2", schema.name, table
    )
    return found


async def report(ledger: PostgresLedger, schema: Schema, *, updates: int) -> None:
    """Let the hot connection tell its statistics, and wait until they are there."""
    async with ledger._hot.take() as line:
        await line.fetch("SELECT pg_stat_force_next_flush()")
    query = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'entries'"

    async def told() -> bool:
        return bool(await schema.value(query, schema.name) >= updates)

    await eventually(told)


async def fill(schema: Schema, rows: int) -> None:
    await schema.execute(
        "INSERT INTO oncebox.entries (id, fence, expires_at, operation, state, kind, format, result_status)"
        " SELECT gen_random_uuid(), n, now(), 1, 2, 1, 1, 1 FROM generate_series(1, $1::int) n",
        rows,
    )


@pytest.mark.parametrize("analyzed", [False, True], ids=["statistics of an empty table", "fresh statistics"])
@pytest.mark.parametrize("rows", [0, 50_000], ids=["fresh table", "50k rows"])
async def test_nothing_on_the_hot_path_reads_the_whole_table(
    open_ledger: OpenLedger, ledger_schema: Schema, rows: int, analyzed: bool
) -> None:
    await ledger_schema.execute("ALTER TABLE oncebox.entries SET (autovacuum_enabled = false)")
    await ledger_schema.execute("ANALYZE oncebox.entries")
    await fill(ledger_schema, rows)
    if analyzed:
        await ledger_schema.execute("ANALYZE oncebox.entries")
    ledger = await open_ledger(limits={"hot_connections": 1})
    before = await scans(ledger_schema)
    for turn in range(ROUNDS):
        keys = [f"{turn} {n}" for n in range(BATCH)]
        fence = (await ledger.claims.claim(offers(*keys))).fence
        assert await ledger.finals.complete([done(key, fence) for key in keys]) == set()
    await report(ledger, ledger_schema, updates=ROUNDS * BATCH)
    assert await scans(ledger_schema) == before
    # Each completed row is looked for once, by its primary key; a plan that goes through the table reads it all.
    read = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = $1 AND relname = 'entries'"
    assert await ledger_schema.value(read, ledger_schema.name) <= 2 * ROUNDS * BATCH


async def test_nothing_off_the_hot_path_reads_the_whole_table_either(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    await fill(ledger_schema, 20_000)
    await ledger_schema.execute("ANALYZE oncebox.entries")
    ledger = await open_ledger(limits={"hot_connections": 1})
    before = await scans(ledger_schema)
    for turn in range(ROUNDS):
        keys = [f"{turn} {n}" for n in range(20)]
        fence = (await ledger.claims.claim(offers(*keys))).fence
        await ledger.claims.claim(offers(*keys), look_first=True)
        await ledger.claims.look_up([id_of(key) for key in keys])
        await ledger.finals.fail([failed(key, fence) for key in keys[:10]])
        await ledger.finals.release([released(key, fence) for key in keys[10:]])
        again = await ledger.claims.claim_again(offers(*keys))
        fences = {won.fence for won in again.values()}
        assert len(again) == len(keys)
        await ledger.finals.complete_late([done(key, fence) for key in keys for fence in fences])
    await report(ledger, ledger_schema, updates=ROUNDS * 60)
    assert await scans(ledger_schema) == before


async def test_completing_stays_a_heap_only_update(open_ledger: OpenLedger, ledger_schema: Schema) -> None:
    ledger = await open_ledger(limits={"hot_connections": 1})
    keys = [f"key {n}" for n in range(BATCH)]
    fence = (await ledger.claims.claim(offers(*keys))).fence
    await ledger.finals.complete([done(key, fence, b"x" * 100) for key in keys])
    await report(ledger, ledger_schema, updates=BATCH)
    hot = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'entries'"
    assert await ledger_schema.value(hot, ledger_schema.name) == BATCH


@pytest.mark.parametrize("rows", [0, 20_000], ids=["fresh table", "20k rows"])
async def test_no_transactional_completion_reads_the_whole_table(
    open_ledger: OpenLedger, ledger_schema: Schema, rows: int
) -> None:
    """Its connection has the planner's usual settings: the handler's own statements may need any of its plans."""
    await ledger_schema.execute("ALTER TABLE oncebox.entries SET (autovacuum_enabled = false)")
    await fill(ledger_schema, rows)
    ledger = await open_ledger(limits={"hot_connections": 1, "transaction_connections": 1})
    keys = [f"key {n}" for n in range(2 * ROUNDS)]
    fence = (await ledger.claims.claim(offers(*keys, kind=Kind.TRANSACTIONAL))).fence
    before = await scans(ledger_schema)

    async def flushing(transaction: Transaction) -> Result:
        await transaction.execute("SELECT pg_stat_force_next_flush()")
        return ok()

    for key in keys:
        assert await ledger.transactions.run(id_of(key), fence, flushing) == ok()
    await report(ledger, ledger_schema, updates=len(keys))
    assert await scans(ledger_schema) == before
