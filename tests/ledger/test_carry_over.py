"""A worker that lost its session goes on under a new one, with the claims that nobody settled meanwhile."""

import asyncio

import pytest

from tests.ledger.conftest import Notices, OpenLedger, Schema
from tests.ledger.locks import holding, somebody_waits
from tests.ledger.offers import done, id_of, offers
from tests.ledger.wire import Loss, Wire
from tests.waiting import eventually
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import State


async def replaced(ledger: PostgresLedger, notices: Notices) -> None:
    """Let the session find out that it has ended, and take its claims along."""
    ledger.session.check()
    await eventually(lambda: notices.of("session_replaced"))
    await eventually(ledger.session.safe)


async def owner(schema: Schema, fence: int) -> int | None:
    found: int | None = await schema.value("SELECT session FROM oncebox.open_claims WHERE fence = $1", fence)
    return found


async def test_running_claims_are_carried_over(
    ledger: PostgresLedger, ledger_schema: Schema, notices: Notices, open_ledger: OpenLedger
) -> None:
    before = ledger.session.id
    claimed = await ledger.claims.claim(offers("a", "b"))
    await ledger_schema.end(before)
    await replaced(ledger, notices)
    assert ledger.session.id != before
    assert await owner(ledger_schema, claimed.fence) == ledger.session.id
    assert ledger.session.covers(claimed.fence)
    assert await (await open_ledger()).settling.settle() == {}
    assert await ledger.finals.complete([done("a", claimed.fence), done("b", claimed.fence)]) == set()


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.REQUEST])
@pytest.mark.parametrize("statement", ["open_session", "carry_over", "open_fences"])
async def test_a_carry_over_that_breaks_is_repeated(
    open_ledger: OpenLedger, wire: Wire, ledger_schema: Schema, notices: Notices, loss: Loss, statement: str
) -> None:
    ledger = await open_ledger(wire.url, lease=6.0)
    claimed = await ledger.claims.claim(offers("k"))
    wire.lose(loss, ledger.queries[statement])
    await ledger_schema.end(ledger.session.id)
    await replaced(ledger, notices)
    assert wire.lost == 1
    assert await owner(ledger_schema, claimed.fence) == ledger.session.id
    assert ledger.session.covers(claimed.fence)


async def test_nothing_may_start_before_the_carry_over_is_known(
    ledger: PostgresLedger, ledger_schema: Schema, notices: Notices
) -> None:
    claimed = await ledger.claims.claim(offers("k"))
    before = ledger.session.id
    await ledger_schema.end(before)
    lock = ledger_schema.sql("SELECT 1 FROM oncebox.open_claims FOR UPDATE")
    async with holding(ledger_schema.url, lock) as holder:
        ledger.session.check()
        await somebody_waits(ledger_schema.admin, holder)
        assert ledger.session.id != before
        assert not ledger.session.safe()
        assert not ledger.session.covers(claimed.fence)
        await holder.execute("ROLLBACK")
    await replaced(ledger, notices)
    assert ledger.session.covers(claimed.fence)


async def test_a_settlement_that_came_first_stays_and_its_claim_may_not_start(
    ledger: PostgresLedger, ledger_schema: Schema, notices: Notices, open_ledger: OpenLedger
) -> None:
    other = await open_ledger()
    settled = await ledger.claims.claim(offers("settled"))
    await ledger_schema.end(ledger.session.id)
    assert await other.settling.settle() == {State.UNKNOWN: 1}
    await replaced(ledger, notices)
    assert notices.of("session_replaced")[0]["settled_meanwhile"] == 1
    assert ledger.session.safe()
    assert not ledger.session.covers(settled.fence), "a reconciler may be about to let it run elsewhere"
    fresh = await ledger.claims.claim(offers("fresh"))
    assert ledger.session.covers(fresh.fence)
    finished = [done("settled", settled.fence)]
    assert await ledger.finals.complete(finished) == {id_of("settled")}
    assert await ledger.finals.complete_late(finished) == set()


async def test_a_settlement_under_way_decides_before_the_carry_over(
    ledger: PostgresLedger, ledger_schema: Schema, notices: Notices
) -> None:
    claimed = await ledger.claims.claim(offers("k"))
    before = ledger.session.id
    await ledger_schema.end(before)
    async with holding(ledger_schema.url, ledger.queries["take_open_claim"], claimed.fence, before) as settling:
        ledger.session.check()
        await somebody_waits(ledger_schema.admin, settling)
        await settling.execute("COMMIT")
    await replaced(ledger, notices)
    assert await owner(ledger_schema, claimed.fence) is None
    assert not ledger.session.covers(claimed.fence)


async def test_a_carry_over_under_way_decides_before_the_settlement(
    ledger: PostgresLedger, ledger_schema: Schema, open_ledger: OpenLedger
) -> None:
    other = await open_ledger()
    claimed = await ledger.claims.claim(offers("k"))
    await ledger_schema.end(ledger.session.id)
    arguments = (ledger.session.id, other.session.id)
    async with holding(ledger_schema.url, ledger.queries["carry_over"], *arguments) as carrying:
        settling = asyncio.create_task(other.settling.settle())
        await somebody_waits(ledger_schema.admin, carrying)
        await carrying.execute("COMMIT")
        assert await settling == {}
    assert (await ledger_schema.entry("k"))["state"] == State.IN_PROGRESS
    assert await owner(ledger_schema, claimed.fence) == other.session.id


async def test_claims_are_not_forgotten_when_the_new_session_ends_before_they_are_carried_over(
    open_ledger: OpenLedger, wire: Wire, ledger_schema: Schema, notices: Notices
) -> None:
    ledger = await open_ledger(wire.url)
    claimed = await ledger.claims.claim(offers("k"))
    before = ledger.session.id
    wire.lose(Loss.REQUEST, ledger.queries["carry_over"])
    await ledger_schema.end(before)
    ledger.session.check()
    await eventually(lambda: notices.of("session_renewal_failed"))
    assert ledger.session.id != before
    await ledger_schema.end(ledger.session.id)
    await replaced(ledger, notices)
    assert await owner(ledger_schema, claimed.fence) == ledger.session.id
    assert ledger.session.covers(claimed.fence)


async def test_a_session_that_ends_twice_is_carried_over_twice(
    ledger: PostgresLedger, ledger_schema: Schema, notices: Notices
) -> None:
    claimed = await ledger.claims.claim(offers("k"))
    for _ in range(2):
        notices.said.clear()
        await ledger_schema.end(ledger.session.id)
        await replaced(ledger, notices)
        assert await owner(ledger_schema, claimed.fence) == ledger.session.id
    assert ledger.session.covers(claimed.fence)
