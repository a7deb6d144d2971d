"""Whoever writes several entries locks them in the order of their ids, also on a small table whose pages say otherwise.

Otherwise two of them, each with the row the other wants next, deadlock.
"""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from tests.ledger.conftest import Notices, OpenLedger, Schema
from tests.ledger.locks import all_wait, holding, somebody_waits
from tests.ledger.offers import doubted, id_of, offers, record, released
from tests.ledger.test_plans import fill
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind
from worker.rules.writes import Parking

KEYS = sorted((f"key {n}" for n in range(200)), key=id_of, reverse=True)
LOWEST = id_of(KEYS[-1])
Write = Callable[[PostgresLedger, PostgresLedger, Schema], Awaitable[Awaitable[object]]]


def parkings() -> list[Parking]:
    return [Parking(record(n), "hold", id_of(key), 1, due=60.0) for n, key in enumerate(KEYS)]


async def settle(mine: PostgresLedger, theirs: PostgresLedger, schema: Schema) -> Awaitable[object]:
    fence, session = await schema.fetch("SELECT fence, session FROM oncebox.open_claims"), theirs.session.id
    await schema.execute("UPDATE oncebox.open_claims SET ids = (SELECT array_agg(id) FROM oncebox.entries)")
    await schema.execute("UPDATE oncebox.entries SET fence = $1", fence[0][0])
    return mine.settling._settle_one(fence[0][0], session, theirs.session.lease)


async def park(mine: PostgresLedger, theirs: PostgresLedger, schema: Schema) -> Awaitable[object]:
    return mine.parking.park(parkings())


async def unpark(mine: PostgresLedger, theirs: PostgresLedger, schema: Schema) -> Awaitable[object]:
    await theirs.parking.park(parkings())
    return mine.parking.finish([parking.place for parking in parkings()])


async def release_strays(mine: PostgresLedger, theirs: PostgresLedger, schema: Schema) -> Awaitable[object]:
    fence = await schema.value("SELECT min(fence) FROM oncebox.open_claims")
    await schema.execute(
        "UPDATE oncebox.open_claims SET session = $1, ids = (SELECT array_agg(id) FROM oncebox.entries)",
        mine.session.id,
    )
    await schema.execute("UPDATE oncebox.entries SET fence = $1", fence)
    mine.fences.refill(10_000_000, mine.fences.now())
    return mine.release_strays()


async def doubt(mine: PostgresLedger, theirs: PostgresLedger, schema: Schema) -> Awaitable[object]:
    fences = {bytes(r[0]): r[1] for r in await schema.fetch("SELECT id, fence FROM oncebox.entries")}
    return mine.finals.doubt([doubted(key, fences[id_of(key)]) for key in KEYS])


async def prune(mine: PostgresLedger, theirs: PostgresLedger, schema: Schema) -> Awaitable[object]:
    mine.queries["wait_briefly"] = "SELECT 1"
    await schema.execute("UPDATE oncebox.entries SET state = 2, result_status = 1, expires_at = '2000-01-01'")
    ids = sorted(UUID(bytes=id_of(key)) for key in KEYS)
    return mine.pruning.prune(ids, await mine.feeds.moment(), None)


@pytest.mark.parametrize(
    "write", [settle, park, unpark, release_strays, doubt, prune], ids=lambda write: write.__name__
)
async def test_entries_are_locked_in_the_order_of_their_ids(
    open_ledger: OpenLedger, ledger_schema: Schema, write: Write
) -> None:
    mine, theirs = await open_ledger(), await open_ledger()
    # One by one, the highest id first: their pages hold them in the opposite order of the ids.
    for key in KEYS:
        await theirs.claims.claim(offers(key, kind=Kind.EXTERNAL))
    under_way = await write(mine, theirs, ledger_schema)
    # Few enough that reading them all looks cheaper than 200 look-ups, and more than the batch.
    await fill(ledger_schema, 300)
    await ledger_schema.execute("ANALYZE oncebox.entries")
    lock = ledger_schema.sql("SELECT id FROM oncebox.entries WHERE id = encode($1::bytea, 'hex')::uuid FOR UPDATE")
    async with holding(ledger_schema.url, lock, LOWEST) as holder:
        waiting = asyncio.ensure_future(under_way)
        await somebody_waits(ledger_schema.admin, holder)
        free = await ledger_schema.fetch("SELECT id FROM oncebox.entries FOR UPDATE SKIP LOCKED")
        assert {id_of(key) for key in KEYS} - {bytes(row[0]) for row in free} == {LOWEST}
        await holder.execute("ROLLBACK")
        await waiting


async def test_finishing_a_parked_record_waits_for_who_moves_its_entry_and_they_never_deadlock(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices
) -> None:
    mine, theirs = await open_ledger(), await open_ledger()
    fence = (await mine.claims.claim(offers("k"))).fence
    await mine.finals.doubt([doubted("k", fence)])
    parking = Parking(record(), "hold", id_of("k"), 1, due=60.0)
    await mine.parking.park([parking])
    lock = ledger_schema.sql("SELECT 1 FROM oncebox.doubts FOR UPDATE")
    async with holding(ledger_schema.url, lock) as holder:
        # It has moved the entry, and wakes what is parked for it next.
        moving = asyncio.create_task(mine.finals.release([released("k", fence)]))
        await somebody_waits(ledger_schema.admin, holder)
        finishing = asyncio.create_task(theirs.parking.finish([parking.place]))
        await all_wait(ledger_schema.admin, ledger_schema.name, 2)
        await holder.execute("ROLLBACK")
        await asyncio.gather(moving, finishing)
    assert notices.said == []
