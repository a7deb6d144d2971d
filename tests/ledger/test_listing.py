"""Lists read a bounded number of rows by an index, page after page, and find every entry of a state once."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.ledger.conftest import Schema
from tests.ledger.offers import doubted, failed, offers
from tests.waiting import eventually
from worker.errors import UsageError
from worker.ledger import listing as listing_module
from worker.ledger.desk import Desk, open_desk
from worker.ledger.keys import Entry, Keys
from worker.ledger.ledger import PostgresLedger
from worker.ledger.listing import Listing, Wanted
from worker.rules.claims import State


@pytest.fixture
async def desk(ledger_schema: Schema) -> AsyncIterator[Desk]:
    await ledger_schema.execute(
        "INSERT INTO oncebox.operations (scope, operation, kind, identity, ttl, quiet)"
        " SELECT 's', 'o' || n, 1, 'v1 key=field(id) tenant=field(t)', interval '1 hour', interval '0'"
        "   FROM generate_series(1, 2) n"
    )
    async with open_desk(ledger_schema.settings()) as opened:
        yield opened


async def all_pages(desk: Desk, state: State, *, limit: int, operations: list[int] | None = None) -> list[Entry]:
    found: list[Entry] = []
    after: str | None = None
    while True:
        page = await Listing(desk).page(Wanted(state, operations, limit=limit, after=after))
        found += page.entries
        after = page.next
        if after is None:
            return found


async def test_every_entry_of_a_state_is_listed_once(
    ledger: PostgresLedger, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "_ROWS", 4)
    monkeypatch.setattr(listing_module, "_MOST_ROWS", 8)
    monkeypatch.setattr(listing_module, "_CLAIMS", 2)
    keys = [f"k{n}" for n in range(30)]
    for operation in (1, 2):
        for start in range(0, 30, 5):
            batch = [f"{operation} {key}" for key in keys[start : start + 5]]
            fence = (await ledger.claims.claim(offers(*batch, operation=operation))).fence
            await ledger.finals.doubt([doubted(key, fence) for key in batch[:1]])
            await ledger.finals.fail([failed(key, fence) for key in batch[1:3]])
    for state, count in ((State.UNKNOWN, 12), (State.FAILED_RETRYABLE, 24), (State.IN_PROGRESS, 24)):
        for limit in (1, 3, 100):
            found = await all_pages(desk, state, limit=limit)
            assert len(found) == len({entry.id for entry in found}) == count, (state, limit)
            assert {entry.state for entry in found} == {state}
    [only] = {e.operation.number for e in await all_pages(desk, State.FAILED_RETRYABLE, limit=5, operations=[2])}
    assert only == 2


async def test_those_in_doubt_come_oldest_first_and_only_old_enough(
    ledger: PostgresLedger, desk: Desk, ledger_schema: Schema
) -> None:
    for key in ("young", "old"):
        fence = (await ledger.claims.claim(offers(key))).fence
        await ledger.finals.doubt([doubted(key, fence)])
    await ledger_schema.execute(
        "UPDATE oncebox.doubts SET since = since - interval '1 hour'"
        " WHERE id = (SELECT id FROM oncebox.entries WHERE key = 'old')"
    )
    assert [entry.key for entry in await all_pages(desk, State.UNKNOWN, limit=1)] == [b"old", b"young"]
    page = await Listing(desk).page(Wanted(State.UNKNOWN, None, timedelta(minutes=30)))
    assert [entry.key for entry in page.entries] == [b"old"]


@pytest.mark.parametrize("state", list(State))
async def test_a_place_that_no_list_ended_with_is_refused(desk: Desk, state: State) -> None:
    for nonsense in ("", "x", "1,2,3,4", "1,yesterday,x"):
        with pytest.raises(UsageError, match="--after"):
            await Listing(desk).page(Wanted(state, None, after=nonsense))


async def test_no_list_and_no_look_reads_the_whole_table(desk: Desk, ledger_schema: Schema) -> None:
    await ledger_schema.execute("ALTER TABLE oncebox.entries SET (autovacuum_enabled = false)")
    await ledger_schema.execute(
        "INSERT INTO oncebox.entries (id, fence, expires_at, operation, state, kind, format, result_status, tenant)"
        " SELECT gen_random_uuid(), n, now() + n * interval '1 ms', 1 + n % 2, 2, 1, 1, 1, 'north'"
        "   FROM generate_series(1, 40000) n"
    )
    await ledger_schema.execute("ANALYZE oncebox.entries")
    # What the preparations scanned must be told before, not while the lists are looked at.
    await ledger_schema.fetch("SELECT pg_stat_force_next_flush()")
    scans = "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'entries'"
    [before] = await ledger_schema.fetch(scans, ledger_schema.name)
    for state in State:
        page = await Listing(desk).page(Wanted(state, None, limit=10))
        assert page.looked_at <= 2 * 20_000
    keys = Keys(desk)
    operations = await keys.operations()
    assert await keys.tenants(operations[1]) == ([b"north"], False)
    await keys.stories([bytes(16)])
    await desk.line.fetch("SELECT pg_stat_force_next_flush()")

    async def told() -> bool:
        [row] = await ledger_schema.fetch(scans, ledger_schema.name)
        return bool(row["idx_scan"] > before["idx_scan"])

    await eventually(told)
    [after] = await ledger_schema.fetch(scans, ledger_schema.name)
    assert after["seq_scan"] == before["seq_scan"]
