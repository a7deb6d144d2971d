"""After a death: claims are settled once, and the late word of the very claim in doubt still counts."""

import asyncio
import contextlib

import asyncpg
import pytest

from tests.ledger.conftest import Notices, OpenLedger, Schema, stop_renewing
from tests.ledger.locks import holding, somebody_waits
from tests.ledger.offers import TTL, Offer, done, doubted, failed, id_of, offers, ok, plan, record, released
from tests.waiting import eventually
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind, State
from worker.rules.context import Transaction
from worker.rules.results import Result
from worker.rules.writes import Parking


async def settle_all(schema: Schema, dead: PostgresLedger, by: PostgresLedger) -> dict[State, int]:
    await stop_renewing(dead)
    await schema.end(dead.session.id)
    return await by.settling.settle()


async def test_each_kind_is_settled_in_its_way(open_ledger: OpenLedger, ledger_schema: Schema) -> None:
    dead, other = await open_ledger(), await open_ledger()
    kinds = {"external": Kind.EXTERNAL, "transactional": Kind.TRANSACTIONAL, "repeatable": Kind.REPEATABLE}
    claimed = await dead.claims.claim([Offer(name, plan(kind)) for name, kind in kinds.items()])
    assert await settle_all(ledger_schema, dead, other) == {State.UNKNOWN: 1, State.FAILED_RETRYABLE: 2}
    for name, kind in kinds.items():
        row = await ledger_schema.entry(name)
        assert row["state"] == (State.UNKNOWN if kind is Kind.EXTERNAL else State.FAILED_RETRYABLE)
        assert (row["crashes"], row["attempts"], row["fence"]) == (1, 0, claimed.fence)
        assert (row["due_at"] is None) == (kind is Kind.EXTERNAL)
    doubts = await ledger_schema.fetch("SELECT id, fence, quiet_until > since AS quiet FROM oncebox.doubts")
    assert [tuple(row) for row in doubts] == [(id_of("external"), claimed.fence, True)]
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.open_claims") == 0
    assert await other.settling.settle() == {}, "settled once"


async def test_the_kind_of_the_claim_decides_not_todays(open_ledger: OpenLedger, ledger_schema: Schema) -> None:
    dead, other = await open_ledger(), await open_ledger()
    claimed = await dead.claims.claim(offers("k"))
    await dead.finals.release([released("k", claimed.fence)])
    await dead.claims.claim_again(offers("k", kind=Kind.REPEATABLE))
    assert await settle_all(ledger_schema, dead, other) == {State.FAILED_RETRYABLE: 1}


async def test_what_was_finished_or_belongs_to_the_living_is_not_settled(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dead, other = await open_ledger(), await open_ledger()
    claimed = await dead.claims.claim(offers("done", "failed", "released", "theirs"))
    await dead.finals.complete([done("done", claimed.fence)])
    await dead.finals.fail([failed("failed", claimed.fence)])
    await dead.finals.release([released("released", claimed.fence), released("theirs", claimed.fence)])
    theirs = await other.claims.claim_again(offers("theirs"))
    if not theirs:
        theirs = await other.claims.claim_again(offers("theirs"))
    assert await settle_all(ledger_schema, dead, other) == {}
    row = await ledger_schema.entry("theirs")
    assert (row["state"], row["fence"], row["crashes"]) == (State.IN_PROGRESS, theirs[id_of("theirs")].fence, 0)


async def test_two_settle_at_once_and_each_entry_counts_one_crash(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dead, one, other = await open_ledger(), await open_ledger(), await open_ledger()
    for n in range(10):
        await dead.claims.claim(offers(*(f"{n} {m}" for m in range(20)), kind=Kind.REPEATABLE))
    await ledger_schema.end(dead.session.id)
    counts = await asyncio.gather(one.settling.settle(), other.settling.settle())
    assert sum(count.get(State.FAILED_RETRYABLE, 0) for count in counts) == 200
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.entries WHERE crashes = 1") == 200


async def test_a_stopped_worker_with_an_open_transaction_delays_its_own_batch_only(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices
) -> None:
    dead, other = await open_ledger(), await open_ledger()
    stuck = await dead.claims.claim(offers("stuck", "beside it", kind=Kind.TRANSACTIONAL))
    await dead.claims.claim(offers("free", kind=Kind.TRANSACTIONAL))
    await ledger_schema.end(dead.session.id)
    update = ledger_schema.sql(
        "UPDATE oncebox.entries SET state = 2, result_status = 1 WHERE id = encode($1::bytea, 'hex')::uuid"
    )
    async with holding(ledger_schema.url, update, id_of("stuck")) as stopped:
        settling = asyncio.create_task(other.settling.settle())
        await somebody_waits(ledger_schema.admin, stopped)
        assert await settling == {State.FAILED_RETRYABLE: 1}
        assert (await ledger_schema.entry("free"))["state"] == State.FAILED_RETRYABLE
        assert (await ledger_schema.entry("beside it"))["state"] == State.IN_PROGRESS
        assert notices.of("settlement_delayed")[0]["fence"] == stuck.fence
        await stopped.execute("ROLLBACK")
    assert await other.settling.settle() == {State.FAILED_RETRYABLE: 2}


async def test_the_server_frees_the_rows_of_a_worker_that_stopped_inside_its_transaction(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dead, other = await open_ledger(lease=0.6, longest_timeout=0.3), await open_ledger()
    claimed = await dead.claims.claim(offers("k", kind=Kind.TRANSACTIONAL))
    await stop_renewing(dead)
    completed, stopped = asyncio.Event(), asyncio.Event()

    async def stops_between_completion_and_commit(transaction: Transaction) -> Result:
        await transaction.fetch(
            dead.queries["complete"].replace("$1::uuid[]", "ARRAY[encode($1::bytea, 'hex')::uuid]"),
            id_of("k"),
            [claimed.fence],
            [1],
            [0],
            [None],
            [None],
        )
        completed.set()
        await stopped.wait()
        return ok()

    running = asyncio.create_task(dead.transactions.run(id_of("k"), claimed.fence, stops_between_completion_and_commit))
    await completed.wait()
    await ledger_schema.end(dead.session.id)

    async def settled() -> bool:
        return await other.settling.settle() == {State.FAILED_RETRYABLE: 1}

    await eventually(settled, message="idle_in_transaction_session_timeout did not free the row")
    stopped.set()
    with contextlib.suppress(Exception):
        assert await running is None
    assert (await ledger_schema.entry("k"))["state"] == State.FAILED_RETRYABLE


@pytest.mark.parametrize("kind", [Kind.EXTERNAL, Kind.REPEATABLE])
async def test_a_late_result_of_the_very_claim_is_accepted(
    open_ledger: OpenLedger, ledger_schema: Schema, kind: Kind
) -> None:
    late, other = await open_ledger(), await open_ledger()
    claimed = await late.claims.claim(offers("k", kind=kind))
    await settle_all(ledger_schema, late, other)
    finished = [done("k", claimed.fence, b"late")]
    assert await late.finals.complete(finished) == {id_of("k")}, "the hot statement leaves it to the rare one"
    assert await late.finals.complete_late(finished) == set()
    row = await ledger_schema.entry("k")
    assert (row["state"], row["result"], row["due_at"]) == (State.COMPLETED, b"late", None)
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.doubts") == 0


async def test_a_result_of_another_claim_does_not_complete_the_one_that_runs(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    first = (await ledger.claims.claim(offers("k"))).fence
    await ledger.finals.release([released("k", first)])
    second = (await ledger.claims.claim_again(offers("k")))[id_of("k")].fence
    assert await ledger.finals.complete([done("k", first)]) == {id_of("k")}
    assert await ledger.transactions.run(id_of("k"), first, returning) is None
    row = await ledger_schema.entry("k")
    assert (row["state"], row["fence"]) == (State.IN_PROGRESS, second)


async def returning(transaction: Transaction) -> Result:
    return ok()


async def test_a_late_result_of_another_claim_is_refused_and_kept(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    late, other = await open_ledger(), await open_ledger()
    claimed = await late.claims.claim(offers("k", kind=Kind.REPEATABLE))
    await settle_all(ledger_schema, late, other)
    again = await other.claims.claim_again(offers("k", kind=Kind.REPEATABLE))
    again = again or await other.claims.claim_again(offers("k", kind=Kind.REPEATABLE))
    assert await late.finals.complete_late([done("k", claimed.fence, b"first")]) == {id_of("k")}
    assert await other.finals.complete([done("k", again[id_of("k")].fence, b"second")]) == set()
    assert (await ledger_schema.entry("k"))["result"] == b"second"
    kept = await ledger_schema.fetch("SELECT id, event, fence, body FROM oncebox.history")
    assert [tuple(row) for row in kept] == [(id_of("k"), "result_refused", claimed.fence, b"first")]


async def test_late_proof_ends_a_doubt_at_once_and_is_no_attempt(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    late, other = await open_ledger(), await open_ledger()
    claimed = await late.claims.claim(offers("k"))
    await settle_all(ledger_schema, late, other)
    assert await late.finals.fail([failed("k", claimed.fence, delay=600)]) == set()
    row = await ledger_schema.entry("k")
    assert (row["state"], row["attempts"], row["crashes"]) == (State.FAILED_RETRYABLE, 0, 1)
    assert await ledger_schema.value("SELECT due_at <= clock_timestamp() FROM oncebox.entries")
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.doubts") == 0
    assert await other.finals.fail([failed("k", claimed.fence + 1)]) == {id_of("k")}, "proof of another claim"


async def test_late_words_of_a_claim_that_was_run_again_change_nothing(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    late, other = await open_ledger(), await open_ledger()
    first = await late.claims.claim(offers("k", kind=Kind.REPEATABLE))
    await settle_all(ledger_schema, late, other)
    again = await other.claims.claim_again(offers("k", kind=Kind.REPEATABLE))
    again = again or await other.claims.claim_again(offers("k", kind=Kind.REPEATABLE))
    before = dict(await ledger_schema.entry("k"))
    assert await late.finals.fail([failed("k", first.fence)]) == {id_of("k")}
    assert await late.finals.doubt([doubted("k", first.fence)]) == {id_of("k")}
    assert await late.finals.release([released("k", first.fence)]) == {id_of("k")}
    assert dict(await ledger_schema.entry("k")) == before
    assert before["fence"] == again[id_of("k")].fence


async def test_after_a_verdict_the_late_result_is_neither_stored_nor_a_double_effect(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    late, other = await open_ledger(), await open_ledger()
    claimed = await late.claims.claim(offers("k"))
    await settle_all(ledger_schema, late, other)
    assert await other.finals.complete_late([done("k", claimed.fence, b"verdict")]) == set()
    assert await late.finals.complete_late([done("k", claimed.fence, b"late")]) == {id_of("k")}
    assert (await ledger_schema.entry("k"))["result"] == b"verdict", "completed is immutable"
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.history") == 0


async def test_a_late_result_wakes_the_records_that_wait_for_it(open_ledger: OpenLedger, ledger_schema: Schema) -> None:
    late, other = await open_ledger(), await open_ledger()
    claimed = await late.claims.claim(offers("k"))
    await settle_all(ledger_schema, late, other)
    assert await other.parking.park([Parking(record(), "unknown", id_of("k"), 1)]) == set()
    assert await other.parking.take_due([1], 10, 60.0) == []
    await late.finals.complete_late([done("k", claimed.fence)])
    assert [one.place[0] for one in await other.parking.take_due([1], 10, 60.0)] == [id_of("k")]


@pytest.mark.parametrize(("left", "moved"), [(0.49, True), (0.51, False)])
async def test_expiry_moves_only_when_less_than_half_is_left(
    open_ledger: OpenLedger, ledger_schema: Schema, left: float, moved: bool
) -> None:
    late = await open_ledger()
    claimed = await late.claims.claim(offers("k"))
    await expire_in(ledger_schema, left * TTL)
    await late.finals.complete_late([done("k", claimed.fence, ttl=TTL)])
    assert (await seconds_left(ledger_schema) > 0.9 * TTL) == moved


async def test_a_settlement_after_a_long_outage_moves_the_expiry(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dead, other = await open_ledger(), await open_ledger()
    await ledger_schema.execute(
        "INSERT INTO oncebox.operations (scope, operation, kind, identity, ttl, quiet)"
        " VALUES ('s', 'o', 3, 'i', $1 * interval '1 second', '1s')",
        TTL,
    )
    await dead.claims.claim(offers("k", kind=Kind.REPEATABLE))
    await expire_in(ledger_schema, -5.0)
    await settle_all(ledger_schema, dead, other)
    assert await seconds_left(ledger_schema) > 0.9 * TTL


async def expire_in(schema: Schema, seconds: float) -> None:
    await schema.execute(
        "UPDATE oncebox.entries SET expires_at = clock_timestamp() + $1::float8 * interval '1 second'", seconds
    )


async def seconds_left(schema: Schema) -> float:
    left: float = await schema.value(
        "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM oncebox.entries"
    )
    return left


async def test_completing_twice_is_harmless(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    claimed = await ledger.claims.claim(offers("k"))
    finished = [done("k", claimed.fence, b"once")]
    assert await ledger.finals.complete(finished) == set()
    before = dict(await ledger_schema.entry("k"))
    assert await ledger.finals.complete(finished) == {id_of("k")}
    assert await ledger.finals.complete_late(finished) == set()
    assert dict(await ledger_schema.entry("k")) == before


async def test_illegal_rows_are_refused_by_the_schema(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    await ledger.claims.claim(offers("k"))
    for change in (
        "state = 2",
        "state = 3, due_at = NULL",
        "state = 5",
        "kind = 4",
        "held = -1",
        "attempts = -1",
        "crashes = -1",
        "result_status = 1",
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await ledger_schema.execute(f"UPDATE oncebox.entries SET {change}")
