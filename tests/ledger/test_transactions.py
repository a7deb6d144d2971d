"""Transactional handlers: what they write and their completion commit together, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.locks import holding, somebody_waits
from tests.ledger.offers import id_of, offers, ok, released
from tests.ledger.wire import Loss, Wire
from worker.errors import Reject, ServiceUnavailable
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind, State, Status
from worker.rules.context import Transaction
from worker.rules.results import ContentType, Result

Body = Callable[[Transaction], Awaitable[Result]]


@pytest.fixture
async def effects(ledger_schema: Schema) -> Schema:
    await ledger_schema.execute("CREATE TABLE oncebox.effects (key text)")
    return ledger_schema


def writing(schema: Schema, result: Result | None = None) -> Body:
    async def body(transaction: Transaction) -> Result:
        await transaction.execute(schema.sql("INSERT INTO oncebox.effects VALUES ('k')"))
        return result or ok()

    return body


async def count(schema: Schema) -> int:
    found: int = await schema.value("SELECT count(*) FROM oncebox.effects")
    return found


async def claim(ledger: PostgresLedger) -> int:
    return (await ledger.claims.claim(offers("k", kind=Kind.TRANSACTIONAL))).fence


async def test_effect_and_completion_commit_together(ledger: PostgresLedger, effects: Schema) -> None:
    fence = await claim(ledger)
    assert await ledger.transactions.run(id_of("k"), fence, writing(effects)) == ok()
    assert (await effects.entry("k"))["state"] == State.COMPLETED
    assert await count(effects) == 1
    await ledger.finals.tidy()
    assert await effects.value("SELECT count(*) FROM oncebox.open_claims") == 0


async def test_a_claim_that_someone_else_decided_takes_its_effect_back(
    ledger: PostgresLedger, effects: Schema, open_ledger: OpenLedger
) -> None:
    fence = await claim(ledger)

    async def settled_meanwhile(transaction: Transaction) -> Result:
        await effects.end(ledger.session.id)
        await (await open_ledger()).settling.settle()
        return await writing(effects)(transaction)

    assert await ledger.transactions.run(id_of("k"), fence, settled_meanwhile) is None
    assert await count(effects) == 0
    assert (await effects.entry("k"))["state"] == State.FAILED_RETRYABLE
    assert not ledger.fences.held(), "the claim is over here, too"


@pytest.mark.parametrize("error", [Reject("no"), RuntimeError("boom"), TimeoutError("own deadline")])
async def test_what_the_handler_raises_is_raised_after_the_rollback_and_the_connection_is_kept(
    open_ledger: OpenLedger, effects: Schema, error: Exception
) -> None:
    ledger = await open_ledger(limits={"transaction_connections": 1})
    fence = await claim(ledger)
    backends: list[int] = []

    async def raising(transaction: Transaction) -> Result:
        backends.append((await transaction.fetchrow("SELECT pg_backend_pid()"))[0])
        await writing(effects)(transaction)
        raise error

    for _ in range(2):
        with pytest.raises(type(error)):
            await ledger.transactions.run(id_of("k"), fence, raising)
    assert await count(effects) == 0
    assert len(set(backends)) == 1
    assert await ledger.transactions.run(id_of("k"), fence, writing(effects)) == ok()


async def test_a_swallowed_database_error_cannot_complete(ledger: PostgresLedger, effects: Schema) -> None:
    fence = await claim(ledger)

    async def swallowing(transaction: Transaction) -> Result:
        with pytest.raises(asyncpg.UndefinedTableError):
            await transaction.execute("SELECT * FROM nowhere")
        return ok()

    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await ledger.transactions.run(id_of("k"), fence, swallowing)
    assert (await effects.entry("k"))["state"] == State.IN_PROGRESS
    assert await ledger.transactions.run(id_of("k"), fence, writing(effects)) == ok()


@pytest.mark.parametrize(("loss", "committed"), [(Loss.ANSWER, True), (Loss.REQUEST, False)])
async def test_a_commit_without_an_answer_is_decided_by_the_release(
    open_ledger: OpenLedger, effects: Schema, wire: Wire, loss: Loss, committed: bool
) -> None:
    ledger = await open_ledger(wire.url)
    fence = await claim(ledger)
    wire.lose(loss, "COMMIT")
    with pytest.raises(ServiceUnavailable):
        await ledger.transactions.run(id_of("k"), fence, writing(effects))
    assert await ledger.finals.release([released("k", fence)]) == ({id_of("k")} if committed else set())
    assert await count(effects) == committed
    assert (await effects.entry("k"))["state"] == (State.COMPLETED if committed else State.FAILED_RETRYABLE)


async def test_a_release_waits_for_a_commit_that_is_still_under_way(ledger: PostgresLedger, effects: Schema) -> None:
    fence = await claim(ledger)
    update = effects.sql("UPDATE oncebox.entries SET state = 2, result_status = 1 WHERE fence = $1")
    async with holding(effects.url, update, fence) as committing:
        releasing = asyncio.create_task(ledger.finals.release([released("k", fence)]))
        await somebody_waits(effects.admin, committing)
        await committing.execute("COMMIT")
        assert await releasing == {id_of("k")}
    assert (await effects.entry("k"))["state"] == State.COMPLETED


async def test_a_connection_that_dies_under_the_handler_is_no_fault_of_the_handler(
    ledger: PostgresLedger, effects: Schema
) -> None:
    fence = await claim(ledger)

    async def dying(transaction: Transaction) -> Result:
        pid = (await transaction.fetchrow("SELECT pg_backend_pid()"))[0]
        await effects.execute("SELECT pg_terminate_backend($1)", pid)
        return await writing(effects)(transaction)

    with pytest.raises(ServiceUnavailable):
        await ledger.transactions.run(id_of("k"), fence, dying)
    assert await ledger.transactions.run(id_of("k"), fence, writing(effects)) == ok()
    assert await count(effects) == 1


async def test_an_idle_connection_that_died_costs_nothing(open_ledger: OpenLedger, effects: Schema) -> None:
    ledger = await open_ledger(limits={"transaction_connections": 1})
    fence = await claim(ledger)

    async def looking(transaction: Transaction) -> Result:
        pids.append((await transaction.fetchrow("SELECT pg_backend_pid()"))[0])
        raise Reject("only looking")

    pids: list[int] = []
    with pytest.raises(Reject):
        await ledger.transactions.run(id_of("k"), fence, looking)
    await effects.execute("SELECT pg_terminate_backend($1)", pids[0])
    assert await ledger.transactions.run(id_of("k"), fence, writing(effects)) == ok()


async def test_a_cancelled_handler_leaves_nothing_and_no_connection(open_ledger: OpenLedger, effects: Schema) -> None:
    ledger = await open_ledger(limits={"transaction_connections": 1})
    fence = await claim(ledger)
    entered = asyncio.Event()

    async def hanging(transaction: Transaction) -> Result:
        await writing(effects)(transaction)
        entered.set()
        await transaction.execute("SELECT pg_sleep(60)")
        return ok()

    running = asyncio.create_task(ledger.transactions.run(id_of("k"), fence, hanging))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await ledger.transactions.run(id_of("k"), fence, writing(effects)) == ok()
    assert await count(effects) == 1


async def test_a_result_code_no_column_can_hold_is_stored_readably(ledger: PostgresLedger, effects: Schema) -> None:
    fence = await claim(ledger)
    result = Result(Status.OK, ContentType.NONE, None, "nul \0")
    assert await ledger.transactions.run(id_of("k"), fence, writing(effects, result)) == result
    assert (await effects.entry("k"))["result_code"] == "nul \ufffd"


async def test_a_handler_may_run_a_statement_as_long_as_its_timeout(open_ledger: OpenLedger, effects: Schema) -> None:
    ledger = await open_ledger(limits={"statement_timeout": "200ms"}, longest_timeout=20.0)
    fence = await claim(ledger)

    async def slow(transaction: Transaction) -> Result:
        assert (await transaction.fetchrow("SHOW statement_timeout"))[0] == "20s"
        return ok()

    assert await ledger.transactions.run(id_of("k"), fence, slow) == ok()
