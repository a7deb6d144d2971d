"""Verdicts under races and deaths: one transaction or none of it, one winner, and evidence that is never overtaken."""

import asyncio
from contextlib import suppress

import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.locks import somebody_waits
from tests.ledger.offers import doubted, id_of, offers, ok, record
from worker.ledger.doubts import rule
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import State
from worker.rules.doubts import Evidence, Ruling
from worker.rules.writes import Parking


async def in_doubt(ledger: PostgresLedger, key: str = "k") -> int:
    fence = (await ledger.claims.claim(offers(key))).fence
    await ledger.finals.doubt([doubted(key, fence)])
    await ledger.parking.park([Parking(record(), "unknown", id_of(key), 1)])
    return fence


class Killed(Exception):
    """Stands for a death before the commit."""


@pytest.mark.parametrize("executed", [True, False])
async def test_a_verdict_whose_janitor_dies_before_the_commit_leaves_everything_as_it_was(
    open_ledger: OpenLedger, ledger_schema: Schema, executed: bool
) -> None:
    ledger, other = await open_ledger(), await open_ledger()
    fence = await in_doubt(ledger)
    before = dict(await ledger_schema.entry("k"))
    evidence = Evidence(id_of("k"), "probe", ok() if executed else None, fence, forced=True)
    async with ledger.line() as line:
        with suppress(Killed):
            async with line.transaction() as tx:
                assert (await rule(tx, ledger.queries, evidence)).ruling is Ruling.SETTLED
                raise Killed
    assert dict(await ledger_schema.entry("k")) == before
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.doubts") == 1
    assert await ledger_schema.value("SELECT due_at FROM oncebox.parked") is None
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.history") == 0
    assert (await other.doubts.rule(evidence)).ruling is Ruling.SETTLED
    assert len(await other.parking.take_due([1], 10, 60.0)) == 1


async def test_of_two_verdicts_at_once_one_settles_and_the_other_hears_of_it(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    one, other = await open_ledger(), await open_ledger()
    for n in range(10):
        fence = await in_doubt(one, f"k{n}")
        yes = Evidence(id_of(f"k{n}"), "probe", ok(), fence)
        no = Evidence(id_of(f"k{n}"), "probe", None, fence, forced=True)
        ruled = await asyncio.gather(one.doubts.rule(yes), other.doubts.rule(no))
        state = State((await ledger_schema.entry(f"k{n}"))["state"])
        # Executed wins in either order: what is not executed is due again, and nobody has claimed it yet.
        assert state is State.COMPLETED
        assert ruled[0].ruling is Ruling.SETTLED
        assert ruled[1].ruling in (Ruling.SETTLED, Ruling.COMPLETED)


async def test_evidence_is_there_before_the_entry_can_fall_into_doubt(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    ledger, other = await open_ledger(first_probe=0.0), await open_ledger()
    fence = (await ledger.claims.claim(offers("k"))).fence
    async with other.line() as line:
        async with line.transaction() as tx:
            assert (await rule(tx, other.queries, Evidence(id_of("k"), "settle", ok()))).ruling is Ruling.KEPT
            doubting = asyncio.create_task(ledger.finals.doubt([doubted("k", fence)]))
            await somebody_waits(ledger_schema.admin, await line.connection())
            assert not doubting.done()
        assert await doubting == set()
    [doubt] = await ledger.doubts.take(1, 10, 60.0)
    assert doubt.evidence == ok()


async def test_a_verdict_repeated_because_its_answer_was_lost_changes_nothing_more(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    ledger = await open_ledger()
    fence = await in_doubt(ledger)
    evidence = Evidence(id_of("k"), "probe", ok(), fence)
    assert (await ledger.doubts.rule(evidence)).ruling is Ruling.SETTLED
    before = dict(await ledger_schema.entry("k"))
    assert (await ledger.doubts.rule(evidence)).ruling is Ruling.COMPLETED
    assert dict(await ledger_schema.entry("k")) == before


async def test_reported_doubts_do_not_slow_the_search_for_open_ones(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    ledger = await open_ledger(first_probe=0.0)
    await ledger_schema.execute(
        "INSERT INTO oncebox.doubts (id, operation, fence, since, quiet_until, due_at, reported_at)"
        " SELECT gen_random_uuid(), 1, n, now(), now(), now() - interval '1 day', now()"
        " FROM generate_series(1, 20000) n"
    )
    await ledger_schema.execute("ANALYZE oncebox.doubts")
    await in_doubt(ledger)
    plan = await ledger_schema.fetch(
        "EXPLAIN SELECT id FROM oncebox.doubts WHERE operation = 1 AND reported_at IS NULL"
        " AND due_at <= (SELECT clock_timestamp()) ORDER BY due_at LIMIT 16"
    )
    assert "doubts_open" in "".join(row[0] for row in plan)
    assert await ledger.doubts.due([1]) == [1]
    assert len(await ledger.doubts.take(1, 16, 60.0)) == 1
