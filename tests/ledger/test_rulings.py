"""An operator's decision is refused in every state but its own, says which state there is, and is audited with it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256

import asyncpg
import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.locks import all_wait, holding, somebody_waits
from tests.ledger.offers import done, doubted, failed, id_of, offers, ok, record
from worker.errors import WrongState
from worker.ledger.desk import Desk, open_desk
from worker.ledger.ledger import PostgresLedger
from worker.ledger.rulings import By, Ruled, Rulings
from worker.rules.claims import Kind, State
from worker.rules.writes import Parking

RESULT = ok(b'{"receipt":7}')
Rule = Callable[[Rulings, str], Awaitable[Ruled]]
ACTS: dict[str, tuple[State, Rule]] = {
    "executed": (State.UNKNOWN, lambda r, key: r.executed(id_of(key), RESULT)),
    "not executed": (State.UNKNOWN, lambda r, key: r.not_executed(id_of(key), fence=1, even_early=True)),
    "release": (State.IN_PROGRESS, lambda r, key: r.release(id_of(key), even_external=True)),
}


@pytest.fixture
async def desk(ledger_schema: Schema) -> AsyncIterator[Desk]:
    async with open_desk(ledger_schema.settings()) as opened:
        yield opened


@pytest.fixture
def rulings(desk: Desk) -> Rulings:
    return Rulings(desk, By("ann@desk", "the gateway says so"))


async def bring(ledger: PostgresLedger, state: State, key: str = "k", kind: Kind = Kind.EXTERNAL) -> int:
    """One entry in this state; its fence."""
    fence = (await ledger.claims.claim(offers(key, kind=kind))).fence
    match state:
        case State.COMPLETED:
            await ledger.finals.complete([done(key, fence)])
        case State.FAILED_RETRYABLE:
            await ledger.finals.fail([failed(key, fence)])
        case State.UNKNOWN:
            await ledger.finals.doubt([doubted(key, fence)])
    return fence


async def be_quiet(schema: Schema) -> None:
    await schema.execute("UPDATE oncebox.doubts SET quiet_until = clock_timestamp()")


async def audit(schema: Schema) -> list[tuple[str, ...]]:
    rows = await schema.fetch("SELECT actor, action, reason, old_state, new_state FROM oncebox.audit ORDER BY id")
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("name", list(ACTS))
async def test_every_act_is_refused_in_the_wrong_state_and_says_which_it_is(
    ledger_schema: Schema, ledger: PostgresLedger, rulings: Rulings, name: str
) -> None:
    needed, rule = ACTS[name]
    for state in set(State) - {needed}:
        key = state.name
        await bring(ledger, state, key)
        before = await ledger_schema.entry(key)
        with pytest.raises(WrongState, match=f"is {state.name.lower()}, not {needed.name.lower()}"):
            await rule(rulings, key)
        assert await ledger_schema.entry(key) == before
    with pytest.raises(WrongState, match="there is no entry"):
        await rule(rulings, "never seen")
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.entries") == 3
    assert await audit(ledger_schema) == []


async def test_executed_ends_the_doubt_wakes_what_waits_and_is_audited(
    ledger_schema: Schema, ledger: PostgresLedger, rulings: Rulings
) -> None:
    fence = await bring(ledger, State.UNKNOWN)
    await ledger.parking.park([Parking(record(), "unknown", id_of("k"), 1)])
    ruled = await rulings.executed(id_of("k"), RESULT)
    assert (ruled.old, ruled.new, ruled.fence, ruled.woken) == (State.UNKNOWN, State.COMPLETED, fence, 1)
    entry = await ledger_schema.entry("k")
    assert (entry["state"], entry["result"], entry["fence"]) == (State.COMPLETED, RESULT.body, fence)
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.doubts") == 0
    assert await ledger_schema.value("SELECT due_at <= clock_timestamp() FROM oncebox.parked")
    assert await audit(ledger_schema) == [("ann@desk", "keys resolve", "the gateway says so", "unknown", "completed")]
    [event] = await ledger_schema.fetch("SELECT event, fence, detail FROM oncebox.history")
    assert tuple(event) == ("resolve", fence, "executed: settled; the gateway says so")


@pytest.mark.parametrize(
    ("keep", "stored"), [("digest", sha256(b'{"receipt":7}').hexdigest().encode()), ("nothing", None)]
)
async def test_an_operators_result_is_kept_as_a_handlers_own_would_be(
    keep: str, stored: bytes | None, open_ledger: OpenLedger, ledger_schema: Schema, rulings: Rulings
) -> None:
    ledger = await open_ledger()
    await bring(ledger, State.UNKNOWN)
    operation = (await ledger_schema.entry("k"))["operation"]
    await ledger_schema.execute(
        "INSERT INTO oncebox.operations (id, scope, operation, kind, identity, ttl, quiet, groups, results)"
        " OVERRIDING SYSTEM VALUE VALUES ($1, 's', 'o', 1, 'v1', interval '1 day', interval '1 min', '{}', $2)",
        operation,
        keep,
    )
    await rulings.executed(id_of("k"), RESULT)
    assert (await ledger_schema.entry("k"))["result"] == stored


async def test_a_verdict_keeps_its_evidence_for_a_whole_ttl(
    ledger_schema: Schema, ledger: PostgresLedger, rulings: Rulings
) -> None:
    await ledger_schema.execute(
        "INSERT INTO oncebox.operations (scope, operation, kind, identity, ttl, quiet)"
        " VALUES ('s', 'o', 1, 'v1', interval '1 hour', interval '1 minute')"
    )
    await bring(ledger, State.UNKNOWN)
    await ledger_schema.execute("UPDATE oncebox.entries SET expires_at = clock_timestamp() + interval '1 minute'")
    await rulings.executed(id_of("k"), RESULT)
    assert await ledger_schema.value("SELECT expires_at > clock_timestamp() + interval '59 min' FROM oncebox.entries")


async def test_not_executed_is_refused_before_the_quiet_time_unless_the_risk_is_taken(
    ledger_schema: Schema, ledger: PostgresLedger, rulings: Rulings
) -> None:
    fence = await bring(ledger, State.UNKNOWN)
    with pytest.raises(WrongState, match=r"may still happen, for .* s more\n.*--even-though-it-may-still-run"):
        await rulings.not_executed(id_of("k"), fence=fence)
    assert (await ledger_schema.entry("k"))["state"] == State.UNKNOWN
    assert await audit(ledger_schema) == []
    await rulings.not_executed(id_of("k"), fence=fence, even_early=True)
    assert (await ledger_schema.entry("k"))["state"] == State.FAILED_RETRYABLE
    assert "before the quiet time" in await ledger_schema.value("SELECT detail FROM oncebox.audit")


async def test_not_executed_after_the_quiet_time_makes_it_due_at_once(
    ledger_schema: Schema, ledger: PostgresLedger, rulings: Rulings
) -> None:
    fence = await bring(ledger, State.UNKNOWN)
    await be_quiet(ledger_schema)
    ruled = await rulings.not_executed(id_of("k"), fence=fence)
    assert (ruled.new, ruled.woken) == (State.FAILED_RETRYABLE, 0)
    assert await ledger_schema.value("SELECT due_at <= clock_timestamp() AND attempts = 0 FROM oncebox.entries")
    assert await ledger.claims.claim_again(offers("k"))


async def test_a_verdict_about_another_fence_is_refused(
    ledger_schema: Schema, ledger: PostgresLedger, rulings: Rulings
) -> None:
    fence = await bring(ledger, State.UNKNOWN)
    await be_quiet(ledger_schema)
    with pytest.raises(WrongState, match=f"unknown with fence {fence}, not {fence - 1}"):
        await rulings.not_executed(id_of("k"), fence=fence - 1)
    with pytest.raises(WrongState, match="another claim is in doubt now"):
        await rulings.executed(id_of("k"), RESULT, fence=fence - 1)


async def test_of_two_verdicts_at_once_one_is_recorded(
    ledger_schema: Schema, ledger: PostgresLedger, desk: Desk, rulings: Rulings
) -> None:
    fence = await bring(ledger, State.UNKNOWN)
    await be_quiet(ledger_schema)
    async with open_desk(ledger_schema.settings()) as second:
        other = Rulings(second, By("bob@desk", "the log says so"))
        answers = await asyncio.gather(
            rulings.executed(id_of("k"), RESULT),
            other.not_executed(id_of("k"), fence=fence),
            return_exceptions=True,
        )
    refused = [answer for answer in answers if isinstance(answer, WrongState)]
    assert len(refused) == 1, answers
    assert len(await audit(ledger_schema)) == 1


async def test_a_claim_is_not_released_while_its_session_lives(
    ledger_schema: Schema, ledger: PostgresLedger, rulings: Rulings
) -> None:
    await bring(ledger, State.IN_PROGRESS, kind=Kind.REPEATABLE)
    with pytest.raises(WrongState, match=rf"its session {ledger.session.id} \(run on .*, pid \d+\) lives, .* s of its"):
        await rulings.release(id_of("k"))
    await ledger_schema.let_lapse(ledger.session.id)
    with pytest.raises(WrongState, match=r"lapsed .* s ago"):
        await rulings.release(id_of("k"))
    assert (await ledger_schema.entry("k"))["state"] == State.IN_PROGRESS
    assert await audit(ledger_schema) == []


async def test_a_claim_whose_session_has_ended_is_released_and_the_rest_of_its_statement_settled(
    ledger_schema: Schema, open_ledger: OpenLedger, rulings: Rulings
) -> None:
    dead = await open_ledger()
    fence = (await dead.claims.claim([*offers("k", kind=Kind.REPEATABLE), *offers("other")])).fence
    await ledger_schema.end(dead.session.id)
    ruled = await rulings.release(id_of("k"))
    assert (ruled.old, ruled.new, ruled.fence) == (State.IN_PROGRESS, State.FAILED_RETRYABLE, fence)
    entry, other = await ledger_schema.entry("k"), await ledger_schema.entry("other")
    assert (entry["state"], entry["crashes"], entry["attempts"]) == (State.FAILED_RETRYABLE, 0, 0)
    assert (other["state"], other["crashes"]) == (State.UNKNOWN, 1)
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.open_claims") == 0
    assert await audit(ledger_schema) == [
        ("ann@desk", "keys release", "the gateway says so", "in_progress", "failed_retryable")
    ]


async def test_releasing_an_external_claim_needs_a_word_about_the_risk(
    ledger_schema: Schema, open_ledger: OpenLedger, rulings: Rulings
) -> None:
    dead = await open_ledger()
    await bring(dead, State.IN_PROGRESS)
    await ledger_schema.end(dead.session.id)
    with pytest.raises(WrongState, match=r"may have run .*\n.*--even-though-it-may-have-run"):
        await rulings.release(id_of("k"))
    await rulings.release(id_of("k"), even_external=True)
    assert (await ledger_schema.entry("k"))["state"] == State.FAILED_RETRYABLE


async def test_a_worker_that_comes_back_does_not_carry_a_released_claim_over(
    ledger_schema: Schema, open_ledger: OpenLedger, rulings: Rulings
) -> None:
    """The operator is in the middle of the release when the worker takes its claims along: one of them has it."""
    worker = await open_ledger()
    await bring(worker, State.IN_PROGRESS, kind=Kind.REPEATABLE)
    await ledger_schema.end(worker.session.id)
    locked = ledger_schema.sql("SELECT 1 FROM oncebox.entries FOR UPDATE")
    async with holding(ledger_schema.url, locked) as somebody:
        releasing = asyncio.create_task(rulings.release(id_of("k")))
        await somebody_waits(ledger_schema.admin, somebody)
        carrying = asyncio.create_task(carry_over(ledger_schema, worker))
        await all_wait(ledger_schema.admin, ledger_schema.name, 2)
    await releasing
    assert await carrying == 0
    assert (await ledger_schema.entry("k"))["state"] == State.FAILED_RETRYABLE


async def carry_over(schema: Schema, worker: PostgresLedger) -> int:
    connection = await asyncpg.connect(schema.url)
    try:
        session = worker.session.id
        return len(await connection.fetch(worker.queries["carry_over"], session, session + 1000))
    finally:
        await connection.close()
