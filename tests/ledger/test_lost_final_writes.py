"""Final writes whose answer was lost are written again, and nothing counts twice."""

import asyncio

import pytest

from tests.ledger.conftest import Notices, OpenLedger, Schema
from tests.ledger.locks import all_wait, holding
from tests.ledger.offers import done, doubted, failed, id_of, offers, released
from tests.ledger.wire import Loss, Wire
from tests.waiting import eventually
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind, State


@pytest.fixture
async def worker(open_ledger: OpenLedger, wire: Wire) -> PostgresLedger:
    """A ledger behind the wire."""
    return await open_ledger(wire.url)


LOSSES = pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.REQUEST])


@LOSSES
async def test_a_completion_is_repeated_and_looks_like_one(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema, loss: Loss
) -> None:
    claimed = await worker.claims.claim(offers("a", "b"))
    finished = [done("a", claimed.fence, b"A"), done("b", claimed.fence, b"B")]
    wire.lose(loss, worker.queries["complete"])
    undecided = await worker.finals.complete(finished)
    assert wire.lost == 1
    late = [one for one in finished if one.id in undecided]
    assert await worker.finals.complete_late(late) == set(), "our own result is not refused"
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.history") == 0, "nor is it a double effect"
    assert (await ledger_schema.entry("a"))["result"] == b"A"


async def test_a_repeated_completion_does_not_finish_the_rest_of_its_batch(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema, open_ledger: OpenLedger
) -> None:
    claimed = await worker.claims.claim(offers("a", "b", "c"))
    wire.lose(Loss.ANSWER, worker.queries["complete"])
    for key in ("a", "b"):
        finished = [done(key, claimed.fence)]
        if await worker.finals.complete(finished):
            await worker.finals.complete_late(finished)
    await worker.finals.tidy()
    # "c" still runs: without its open-claims row nobody could ever settle it.
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.open_claims") == 1
    other = await open_ledger()
    await ledger_schema.end(worker.session.id)
    assert await other.settling.settle() == {State.UNKNOWN: 1}
    assert (await ledger_schema.entry("c"))["state"] == State.UNKNOWN


@LOSSES
async def test_a_late_result_is_repeated(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema, open_ledger: OpenLedger, loss: Loss
) -> None:
    other = await open_ledger()
    claimed = await worker.claims.claim(offers("k"))
    await ledger_schema.end(worker.session.id)
    await other.settling.settle()
    finished = [done("k", claimed.fence)]
    assert await worker.finals.complete(finished) == {id_of("k")}
    wire.lose(loss, "COMMIT")
    assert await worker.finals.complete_late(finished) == set()
    assert wire.lost == 1
    assert (await ledger_schema.entry("k"))["state"] == State.COMPLETED
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.doubts") == 0


async def test_a_result_refused_by_fence_is_kept_once_however_often_it_is_told(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema
) -> None:
    claimed = await worker.claims.claim(offers("k", kind=Kind.REPEATABLE))
    await worker.finals.release([released("k", claimed.fence)])
    again = await worker.claims.claim_again(offers("k", kind=Kind.REPEATABLE))
    wire.lose(Loss.ANSWER, "COMMIT")
    assert await worker.finals.complete_late([done("k", claimed.fence, b"old")]) == {id_of("k")}
    assert wire.lost == 1
    kept = await ledger_schema.fetch("SELECT event, fence, body FROM oncebox.history")
    assert [tuple(row) for row in kept] == [("result_refused", claimed.fence, b"old")]
    row = await ledger_schema.entry("k")
    assert (row["state"], row["fence"]) == (State.IN_PROGRESS, again[id_of("k")].fence)


@LOSSES
async def test_a_failure_counts_once(worker: PostgresLedger, wire: Wire, ledger_schema: Schema, loss: Loss) -> None:
    claimed = await worker.claims.claim(offers("k"))
    wire.lose(loss, "COMMIT")
    await worker.finals.fail([failed("k", claimed.fence, delay=60)])
    assert wire.lost == 1
    row = await ledger_schema.entry("k")
    assert (row["state"], row["attempts"]) == (State.FAILED_RETRYABLE, 1)


@LOSSES
async def test_a_release_is_repeated(worker: PostgresLedger, wire: Wire, ledger_schema: Schema, loss: Loss) -> None:
    claimed = await worker.claims.claim(offers("k"))
    wire.lose(loss, "COMMIT")
    await worker.finals.release([released("k", claimed.fence)])
    assert wire.lost == 1
    row = await ledger_schema.entry("k")
    assert (row["state"], row["attempts"], row["crashes"]) == (State.FAILED_RETRYABLE, 0, 0)


@LOSSES
async def test_a_doubt_is_repeated(worker: PostgresLedger, wire: Wire, ledger_schema: Schema, loss: Loss) -> None:
    claimed = await worker.claims.claim(offers("k"))
    wire.lose(loss, "COMMIT")
    await worker.finals.doubt([doubted("k", claimed.fence)])
    assert wire.lost == 1
    assert (await ledger_schema.entry("k"))["state"] == State.UNKNOWN
    rows = await ledger_schema.fetch("SELECT id, fence FROM oncebox.doubts")
    assert [tuple(row) for row in rows] == [(id_of("k"), claimed.fence)]


async def test_a_completion_that_commits_after_its_repetition_changes_nothing(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema
) -> None:
    claimed = await worker.claims.claim(offers("k"))
    finished = [done("k", claimed.fence, b"once")]
    lock = ledger_schema.sql("SELECT 1 FROM oncebox.entries FOR UPDATE")
    async with holding(ledger_schema.url, lock) as holder:
        wire.lose(Loss.HEARING, worker.queries["complete"])
        completing = asyncio.create_task(worker.finals.complete(finished))
        await eventually(lambda: wire.lost)
        await all_wait(ledger_schema.admin, ledger_schema.name, 2)
        await holder.execute("ROLLBACK")
        undecided = await completing
    if undecided:
        assert await worker.finals.complete_late(finished) == set()
    assert (await ledger_schema.entry("k"))["result"] == b"once"
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.history") == 0


@pytest.mark.parametrize("bad", ["nul \0 inside", "lone \udc80 surrogate"])
async def test_an_error_text_no_column_can_hold_does_not_refuse_its_batch(
    worker: PostgresLedger, ledger_schema: Schema, bad: str
) -> None:
    claimed = await worker.claims.claim(offers("a", "b", "c"))
    await worker.finals.fail([failed("a", claimed.fence, error=bad)])
    await worker.finals.doubt([doubted("b", claimed.fence, error=bad)])
    result = done("c", claimed.fence).result
    coded = type(result)(result.status, result.content_type, result.body, bad)
    finished = [type(done("c", 0))(id_of("c"), claimed.fence, coded)]
    assert await worker.finals.complete(finished) == set()
    assert await worker.finals.complete_late(finished) == set()
    states = [(await ledger_schema.entry(key))["state"] for key in ("a", "b", "c")]
    assert states == [State.FAILED_RETRYABLE, State.UNKNOWN, State.COMPLETED]


async def test_finished_batches_are_forgotten_in_bulk_and_unfinished_ones_kept(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema
) -> None:
    fences = [(await worker.claims.claim(offers(f"{n} a", f"{n} b"))).fence for n in range(3)]
    await worker.finals.complete([done("0 a", fences[0]), done("0 b", fences[0]), done("1 a", fences[1])])
    wire.lose(Loss.REQUEST, worker.queries["forget_open_claims"])
    with pytest.raises(Exception, match="Postgres did not answer"):
        await worker.finals.tidy()
    await worker.finals.tidy()
    left = await ledger_schema.fetch("SELECT fence FROM oncebox.open_claims ORDER BY fence")
    assert [row[0] for row in left] == fences[1:]
    await worker.finals.complete([done("1 b", fences[1])])
    await worker.finals.tidy()
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.open_claims") == 1


async def test_losing_answers_is_said(worker: PostgresLedger, wire: Wire, notices: Notices) -> None:
    claimed = await worker.claims.claim(offers("k"))
    wire.lose(Loss.ANSWER, worker.queries["complete"])
    await worker.finals.complete([done("k", claimed.fence)])
    assert len(notices.of("final_write_broke")) == 1
