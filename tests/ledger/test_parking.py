"""Parking: what is parked stays exactly as long as it is needed, and whatever waits is woken."""

import asyncio

import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.locks import all_wait, holding, somebody_waits
from tests.ledger.offers import done, doubted, failed, id_of, offers, record
from tests.ledger.wire import Loss, Wire
from worker.ledger.ledger import PostgresLedger
from worker.rules.writes import Parking, Place

LOSSES = pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.REQUEST])


def parking(key: str | None, offset: int = 0, *, due: float | None = 60.0, again: bool = False) -> Parking:
    return Parking(record(offset), "why", None if key is None else id_of(key), 1, due, again)


def place(key: str, offset: int = 0) -> Place:
    return (id_of(key), "t", 0, offset)


async def held(schema: Schema, key: str) -> int:
    count: int = (await schema.entry(key))["held"]
    return count


async def parked(schema: Schema) -> int:
    count: int = await schema.value("SELECT count(*) FROM oncebox.parked")
    return count


async def in_doubt(ledger: PostgresLedger, key: str) -> int:
    fence = (await ledger.claims.claim(offers(key))).fence
    await ledger.finals.doubt([doubted(key, fence)])
    return fence


async def test_a_record_comes_back_byte_for_byte(ledger: PostgresLedger) -> None:
    await ledger.claims.claim(offers("k"))
    given = record(7, value=b"\x00\xff")
    assert await ledger.parking.park([Parking(given, "hold", id_of("k"), 1, 0.0)]) == set()
    [taken] = await ledger.parking.take_due([1], 10, 60.0)
    assert (taken.record, taken.place, taken.reason) == (given, place("k", 7), "hold")
    assert await ledger.parking.take_due([1], 10, 60.0) == [], "taken for a while"


@LOSSES
async def test_holds_are_counted_once_per_record_whatever_is_repeated(
    open_ledger: OpenLedger, wire: Wire, ledger_schema: Schema, loss: Loss
) -> None:
    ledger = await open_ledger(wire.url)
    await ledger.claims.claim(offers("a", "b"))
    batch = [parking("a", 0), parking("a", 1), parking("b", 2), parking(None, 3)]
    wire.lose(loss, "COMMIT")
    assert await ledger.parking.park(batch) == set()
    assert wire.lost == 1
    assert await ledger.parking.park(batch) == set(), "parking twice is harmless"
    assert (await held(ledger_schema, "a"), await held(ledger_schema, "b")) == (2, 1)
    assert await parked(ledger_schema) == 4
    wire.lose(loss, "COMMIT")
    finished = [place("a", 0), place("b", 2)]
    await ledger.parking.finish(finished)
    assert wire.lost == 2
    await ledger.parking.finish(finished)
    assert (await held(ledger_schema, "a"), await held(ledger_schema, "b")) == (1, 0)
    assert await parked(ledger_schema) == 2


async def test_a_record_that_is_in_a_batch_twice_is_held_once(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    await ledger.claims.claim(offers("k"))
    assert await ledger.parking.park([parking("k"), parking("k")]) == set()
    assert (await held(ledger_schema, "k"), await parked(ledger_schema)) == (1, 1)


async def test_a_batch_of_large_records_is_parked_in_portions(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    await ledger.claims.claim(offers("k"))
    large = [Parking(record(n, value=b"x" * (3 << 20)), "hold", id_of("k"), 1, 60.0) for n in range(5)]
    assert await ledger.parking.park([*large, parking("gone", 9)]) == {place("gone", 9)}
    assert (await held(ledger_schema, "k"), await parked(ledger_schema)) == (5, 5)


async def test_finishing_what_was_never_parked_lowers_nothing(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    await ledger.claims.claim(offers("k"))
    await ledger.parking.park([parking("k", 0)])
    await ledger.parking.finish([place("k", 1), place("other", 0)])
    assert await held(ledger_schema, "k") == 1


async def test_an_entry_that_completed_meanwhile_refuses_the_record(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    await ledger.claims.claim(offers("done", "running"))
    completion = ledger_schema.sql(
        "UPDATE oncebox.entries SET state = 2, result_status = 1 WHERE id = encode($1::bytea, 'hex')::uuid"
    )
    async with holding(ledger_schema.url, completion, id_of("done")) as completing:
        call = asyncio.create_task(ledger.parking.park([parking("done", 0), parking("running", 1), parking("gone", 2)]))
        await somebody_waits(ledger_schema.admin, completing)
        await completing.execute("COMMIT")
        assert await call == {place("done", 0), place("gone", 2)}
    assert await parked(ledger_schema) == 1
    assert (await held(ledger_schema, "done"), await held(ledger_schema, "running")) == (0, 1)


@pytest.mark.parametrize("again", [False, True], ids=["parked first", "parked again"])
async def test_a_record_that_waits_for_a_verdict_is_not_parked_once_the_verdict_is_there(
    ledger: PostgresLedger, ledger_schema: Schema, again: bool
) -> None:
    """It was judged when its entry was unknown; by now nothing would ever wake it."""
    fence = await in_doubt(ledger, "k")
    if again:
        await ledger.parking.park([parking("k", due=0.0)])
        assert len(await ledger.parking.take_due([1], 10, 60.0)) == 1
    await ledger.finals.fail([failed("k", fence)])
    assert await ledger.parking.park([parking("k", due=None, again=again)]) == {place("k")}
    due = await ledger_schema.value("SELECT count(*) FROM oncebox.parked WHERE due_at IS NOT NULL")
    assert (due, await held(ledger_schema, "k")) == ((1, 1) if again else (0, 0))


@pytest.mark.parametrize("again", [False, True], ids=["parked first", "parked again"])
async def test_a_verdict_that_comes_while_a_record_is_being_parked_wakes_it(
    ledger: PostgresLedger, ledger_schema: Schema, again: bool, open_ledger: OpenLedger
) -> None:
    other = await open_ledger()
    fence = await in_doubt(ledger, "k")
    if again:
        await ledger.parking.park([parking("k", due=0.0)])
        assert len(await ledger.parking.take_due([1], 10, 60.0)) == 1
    share = ledger_schema.sql("SELECT 1 FROM oncebox.entries FOR UPDATE")
    async with holding(ledger_schema.url, share) as holder:
        call = asyncio.create_task(ledger.parking.park([parking("k", due=None, again=again)]))
        await all_wait(ledger_schema.admin, ledger_schema.name, 1)
        verdict = asyncio.create_task(other.finals.complete_late([done("k", fence)]))
        await all_wait(ledger_schema.admin, ledger_schema.name, 2)
        await holder.execute("ROLLBACK")
        refused = await call
        assert await verdict == set()
    taken = await other.parking.take_due([1], 10, 60.0)
    assert len(taken) == 1 or refused == {place("k")}, "parked, and nobody woke it"


async def test_a_record_in_doubt_waits_for_the_verdict_and_not_for_time(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    fence = await in_doubt(ledger, "k")
    assert await ledger.parking.park([parking("k", 0, due=None), parking("k", 1, due=None)]) == set()
    assert await held(ledger_schema, "k") == 2
    assert await ledger.parking.park([parking("k", 0, due=None, again=True)]) == set()
    assert await held(ledger_schema, "k") == 2, "parked again is held once"
    assert await ledger.parking.take_due([1], 10, 60.0) == []
    await ledger.finals.complete_late([done("k", fence)])
    assert {one.place for one in await ledger.parking.take_due([1], 10, 60.0)} == {place("k", 0), place("k", 1)}


async def test_more_records_than_a_small_number_can_count_are_held(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    await ledger.claims.claim(offers("k"))
    await ledger_schema.execute("UPDATE oncebox.entries SET held = 32767")
    assert await ledger.parking.park([parking("k")]) == set()
    assert await held(ledger_schema, "k") == 32768


async def test_a_record_without_an_entry_is_parked_under_its_position(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    assert await ledger.parking.park([parking(None, 5, due=None)]) == set()
    assert await parked(ledger_schema) == 1
    await ledger.parking.finish([parking(None, 5).place])
    assert await parked(ledger_schema) == 0


async def test_a_postponed_record_moves_its_time_only(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    await ledger.claims.claim(offers("k"))
    await ledger.parking.park([parking("k", due=0.0)])
    await ledger.parking.take_due([1], 10, 60.0)
    assert await ledger.parking.park([parking("k", due=600.0, again=True)]) == set()
    assert await held(ledger_schema, "k") == 1
    left = "SELECT extract(epoch FROM due_at - clock_timestamp())::float8 FROM oncebox.parked"
    assert 590 < await ledger_schema.value(left) <= 600


async def test_two_workers_take_each_due_record_once(open_ledger: OpenLedger) -> None:
    one, other = await open_ledger(), await open_ledger()
    await one.claims.claim(offers("k"))
    await one.parking.park([parking("k", n, due=0.0) for n in range(200)])
    taken = await asyncio.gather(*(each.parking.take_due([1], 150, 60.0) for each in (one, other)))
    places = [each.place[3] for batch in taken for each in batch]
    assert len(places) == len(set(places))
    rest = [each.place[3] for each in await one.parking.take_due([1], 200, 60.0)]
    assert sorted(places + rest) == list(range(200))


async def test_finishing_beside_verdicts_ends_well(open_ledger: OpenLedger, ledger_schema: Schema) -> None:
    one, other = await open_ledger(), await open_ledger()
    fences = {f"k{n}": await in_doubt(one, f"k{n}") for n in range(8)}
    await one.parking.park([parking(key, n, due=None) for n, key in enumerate(fences)])

    finished = [place(key, n) for n, key in enumerate(fences)]
    verdicts = [done(key, fence) for key, fence in fences.items()]
    await asyncio.gather(other.finals.complete_late(verdicts), one.parking.finish(finished))
    assert await parked(ledger_schema) == 0
    assert [await held(ledger_schema, key) for key in fences] == [0] * 8
