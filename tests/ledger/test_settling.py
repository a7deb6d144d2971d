"""After a death: every claim is settled once, in the way of its kind, and nothing that lives is touched."""

import asyncio
import contextlib

import asyncpg
import pytest

from tests.ledger.afterwards import expire_in, seconds_left, settle_all
from tests.ledger.conftest import Notices, OpenLedger, Schema, stop_renewing
from tests.ledger.locks import holding, somebody_waits
from tests.ledger.offers import TTL, Offer, done, failed, id_of, offers, ok, plan, released
from tests.waiting import eventually
from worker.errors import ServiceUnavailable
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind, State
from worker.rules.context import Transaction
from worker.rules.results import Result


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


async def test_the_server_frees_the_rows_of_a_worker_that_stopped_inside_a_final_write(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dead, other = await open_ledger(lease=0.6), await open_ledger()
    claimed = await dead.claims.claim(offers("k"))
    await stop_renewing(dead)
    await ledger_schema.end(dead.session.id)
    async with dead._hot.take() as line:
        block = line.transaction()
        tx = await block.__aenter__()
        await tx.fetch(
            ledger_schema.sql("UPDATE oncebox.entries SET error = 'stopped' WHERE fence = $1"), claimed.fence
        )

        async def settled() -> bool:
            return await other.settling.settle() == {State.UNKNOWN: 1}

        await eventually(settled, message="the server did not give up on the stopped worker")
        with pytest.raises(ServiceUnavailable):
            await block.__aexit__(None, None, None)


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
