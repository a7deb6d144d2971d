"""A claim whose answer was lost: it may have committed, may commit later, or never arrived. It is won once."""

import asyncio

import pytest

from tests.ledger.conftest import EITHER_WAY, Notices, OpenLedger, Schema
from tests.ledger.locks import holding, nobody_executes, somebody_waits
from tests.ledger.offers import Offer, done, failed, id_of, offers, plan
from tests.ledger.wire import Loss, Wire
from tests.waiting import eventually
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind, State
from worker.rules.entries import Answer, answer

pytestmark = EITHER_WAY


def claim_of(ledger: PostgresLedger) -> str:
    """The text of its next claim."""
    return ledger.queries["claim_new" if ledger.claims._novelty.expected else "claim"]


@pytest.fixture
async def worker(open_ledger: OpenLedger, wire: Wire) -> PostgresLedger:
    """A ledger behind the wire."""
    ledger = await open_ledger(wire.url)
    await ledger.claims.claim(offers("warm"))
    return ledger


async def runs_once(ledger: PostgresLedger, schema: Schema, key: str, fence: int) -> None:
    """The holder of this fence, and nobody else, can finish the key."""
    row = await schema.entry(key)
    assert (row["state"], row["fence"]) == (State.IN_PROGRESS, fence)
    assert await ledger.finals.complete([done(key, fence)]) == set()


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.REQUEST])
async def test_a_claim_without_an_answer_is_made_again_and_won_once(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema, loss: Loss
) -> None:
    wire.lose(loss, claim_of(worker))
    claimed = await worker.claims.claim(offers("a", "b"))
    assert wire.lost == 1
    for key in ("a", "b"):
        won = claimed.winner(id_of(key))
        assert won is not None
        await runs_once(worker, ledger_schema, key, won.fence)


async def test_a_claim_that_commits_after_it_was_offered_again_is_retaken(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema
) -> None:
    # The broken statement has inserted the first key and waits for the last one; the retry must wait for it.
    first, last = sorted(("a", "z"), key=id_of)
    insert = ledger_schema.sql(
        "INSERT INTO oncebox.entries (id, fence, expires_at, operation, state, kind, format, fingerprint)"
        " VALUES (encode($1::bytea, 'hex')::uuid, 1, now(), 1, 1, 1, 1, 'f')"
    )
    async with holding(ledger_schema.url, insert, id_of(last)) as holder:
        wire.lose(Loss.HEARING, claim_of(worker))
        claiming = asyncio.create_task(worker.claims.claim(offers(first, last)))
        broken = await somebody_waits(ledger_schema.admin, holder)
        await eventually(lambda: wire.lost)
        retrying = await eventually(lambda: waits_for(ledger_schema, broken[0]))
        await holder.execute("ROLLBACK")
        claimed = await claiming
    await nobody_executes(ledger_schema.admin, [*broken, *retrying])
    for key in (first, last):
        won = claimed.winner(id_of(key))
        assert won is not None, f"{key} was claimed by the broken call, and nobody runs it"
        await runs_once(worker, ledger_schema, key, won.fence)


async def waits_for(schema: Schema, pid: int) -> list[int]:
    rows = await schema.fetch("SELECT pid FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", pid)
    return [row[0] for row in rows]


async def test_what_was_won_is_not_forgotten_when_looking_up_the_losers_breaks(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema, open_ledger: OpenLedger
) -> None:
    other = await open_ledger()
    theirs = await other.claims.claim(offers("theirs"))
    await worker.claims.claim(offers("theirs"))
    wire.lose(Loss.REQUEST, worker.queries["look_up"])
    claimed = await worker.claims.claim(offers("mine", "theirs"))
    assert wire.lost == 1
    assert claimed.rows[id_of("theirs")].fence == theirs.fence
    won = claimed.winner(id_of("mine"))
    assert won is not None, "it waits for its own claim, for ever"
    await runs_once(worker, ledger_schema, "mine", won.fence)


async def test_a_cancelled_claim_leaves_nothing_claimed(
    worker: PostgresLedger, ledger_schema: Schema, open_ledger: OpenLedger
) -> None:
    other = await open_ledger()
    await other.claims.claim(offers("theirs"))
    # Cancelled between its two statements: won, but nobody will ever hear of it.
    real = worker.claims._look_up
    reached = asyncio.Event()

    async def hang(*arguments: object) -> object:
        reached.set()
        await asyncio.Event().wait()
        return await real(*arguments)  # type: ignore[arg-type]

    worker.claims._look_up = hang  # type: ignore[assignment, method-assign]
    claiming = asyncio.create_task(worker.claims.claim(offers("mine", "theirs")))
    await reached.wait()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    worker.claims._look_up = real  # type: ignore[method-assign]
    await worker.release_strays()
    assert (await ledger_schema.entry("mine"))["state"] == State.FAILED_RETRYABLE


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.REQUEST])
async def test_claiming_again_without_an_answer_is_retaken_by_the_next_offer(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema, loss: Loss
) -> None:
    claimed = await worker.claims.claim(offers("k"))
    await worker.finals.fail([failed("k", claimed.fence)])
    wire.lose(loss, worker.queries["claim_again"])
    assert await worker.claims.claim_again(offers("k")) == {}
    assert wire.lost == 1
    offered = await worker.claims.claim(offers("k"))
    won = offered.winner(id_of("k"))
    if loss is Loss.REQUEST:
        assert won is None
        assert answer(offered.rows[id_of("k")], b"f", plan(), 3) is Answer.DUE
        won = (await worker.claims.claim_again(offers("k")))[id_of("k")]
    assert won is not None
    assert won.attempts == 1
    await runs_once(worker, ledger_schema, "k", won.fence)


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.REQUEST])
async def test_retaking_without_an_answer_is_retaken_itself(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema, loss: Loss
) -> None:
    wire.lose(Loss.ANSWER, claim_of(worker))
    wire.lose(loss, worker.queries["retake"])
    claimed = await worker.claims.claim(offers("a", "b"))
    assert wire.lost == 2
    for key in ("a", "b"):
        won = claimed.winner(id_of(key))
        assert won is not None
        await runs_once(worker, ledger_schema, key, won.fence)


async def test_a_lost_claim_is_never_retaken_for_another_payload(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema
) -> None:
    claimed = await worker.claims.claim(offers("k"))
    await worker.finals.fail([failed("k", claimed.fence)])
    wire.lose(Loss.ANSWER, worker.queries["claim_again"])
    assert await worker.claims.claim_again(offers("k")) == {}
    # The record that was offered is gone with its partition; the next one abuses its key.
    offered = await worker.claims.claim([Offer("k", fingerprint=b"other")])
    assert offered.winner(id_of("k")) is None
    assert answer(offered.rows[id_of("k")], b"other", plan(), 3) is Answer.MISUSE
    await worker.release_strays()
    assert (await ledger_schema.entry("k"))["state"] == State.FAILED_RETRYABLE


async def test_a_stray_is_released_and_a_live_claim_never(
    worker: PostgresLedger, wire: Wire, ledger_schema: Schema
) -> None:
    live = await worker.claims.claim(offers("live"))
    await worker.finals.fail([failed("k", (await worker.claims.claim(offers("k"))).fence)])
    wire.lose(Loss.ANSWER, worker.queries["claim_again"])
    await worker.claims.claim_again(offers("k"))
    assert (await ledger_schema.entry("k"))["state"] == State.IN_PROGRESS
    assert await worker.release_strays() == 1
    row = await ledger_schema.entry("k")
    assert (row["state"], row["attempts"]) == (State.FAILED_RETRYABLE, 1)
    assert await worker.release_strays() == 0
    await runs_once(worker, ledger_schema, "live", live.fence)
    assert id_of("k") in await worker.claims.claim_again(offers("k"))


async def test_a_claim_under_way_is_no_stray(worker: PostgresLedger, ledger_schema: Schema, wire: Wire) -> None:
    first, last = sorted(("a", "z"), key=id_of)
    insert = ledger_schema.sql(
        "INSERT INTO oncebox.entries (id, fence, expires_at, operation, state, kind, format)"
        " VALUES (encode($1::bytea, 'hex')::uuid, 1, now(), 1, 1, 1, 1)"
    )
    async with holding(ledger_schema.url, insert, id_of(last)) as holder:
        claiming = asyncio.create_task(worker.claims.claim(offers(first, last)))
        await somebody_waits(ledger_schema.admin, holder)
        # A younger call breaks and commits: it is not released while the older one could explain it.
        wire.lose(Loss.ANSWER, claim_of(worker))
        younger = asyncio.create_task(worker.claims.claim(offers("young")))
        await eventually(lambda: wire.lost)
        assert await worker.release_strays() == 0
        await holder.execute("ROLLBACK")
        claimed = await claiming
        won = (await younger).winner(id_of("young"))
    assert won is not None
    await worker.release_strays()
    for key, fence in ((first, claimed.fence), (last, claimed.fence), ("young", won.fence)):
        await runs_once(worker, ledger_schema, key, fence)


async def test_a_late_arrival_of_a_lost_claim_changes_nothing(worker: PostgresLedger, ledger_schema: Schema) -> None:
    """The statement that never arrived arrives after all, when the key is long finished."""
    lost = worker.fences.take()
    worker.fences.lost.add(lost)
    claimed = await worker.claims.claim(offers("k", kind=Kind.REPEATABLE))
    await worker.finals.fail([failed("k", claimed.fence)])
    for name, arguments in (
        ("claim_again", ([b"f"], [5], [3], [60.0], 3)),
        ("retake", ([lost],)),
    ):
        text = worker.queries[name].replace("$3::uuid[]", "ARRAY[$3::uuid]")
        assert await ledger_schema.admin.fetch(text, worker.session.id, lost, id_of("k"), *arguments) == []
        await ledger_schema.execute("DELETE FROM oncebox.open_claims WHERE fence = $1", lost)
    assert (await ledger_schema.entry("k"))["fence"] == claimed.fence


async def test_losing_answers_is_said(worker: PostgresLedger, wire: Wire, notices: Notices) -> None:
    wire.lose(Loss.ANSWER, claim_of(worker))
    await worker.claims.claim(offers("k"))
    assert len(notices.of("claim_broke")) == 1
    assert notices.of("claim_retaken") == [{"entries": 1}]
