"""Late words: the result or the proof of the very claim in doubt still counts; that of any other does not."""

import pytest

from tests.ledger.afterwards import expire_in, seconds_left, settle_all
from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.offers import TTL, done, doubted, failed, id_of, offers, ok, record, released
from worker.ledger.ledger import PostgresLedger
from worker.ledger.portions import portions
from worker.rules.claims import Kind, State
from worker.rules.context import Transaction
from worker.rules.results import Result
from worker.rules.writes import Parking


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


async def test_a_claim_that_never_started_ends_its_doubt_at_once(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    late, other = await open_ledger(), await open_ledger()
    claimed = await late.claims.claim(offers("k"))
    await settle_all(ledger_schema, late, other)
    assert await other.parking.park([Parking(record(), "unknown", id_of("k"), 1)]) == set()
    assert await late.finals.release([released("k", claimed.fence)]) == set()
    row = await ledger_schema.entry("k")
    assert (row["state"], row["attempts"], row["crashes"]) == (State.FAILED_RETRYABLE, 0, 1)
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.doubts") == 0
    assert len(await other.parking.take_due([1], 10, 60.0)) == 1


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
    kept = await ledger_schema.fetch("SELECT event, fence, body FROM oncebox.history")
    assert [tuple(row) for row in kept] == [("result_differs", claimed.fence, b"late")], "kept, as no double effect"


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


async def test_completing_twice_is_harmless(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    claimed = await ledger.claims.claim(offers("k"))
    finished = [done("k", claimed.fence, b"once")]
    assert await ledger.finals.complete(finished) == set()
    before = dict(await ledger_schema.entry("k"))
    assert await ledger.finals.complete(finished) == set()
    assert await ledger.finals.complete_late(finished) == set()
    assert await ledger.finals.complete([done("k", claimed.fence, b"twice")]) == {id_of("k")}
    assert dict(await ledger_schema.entry("k")) == before


async def test_a_batch_of_large_results_is_stored_in_portions(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    keys = [f"k{n}" for n in range(6)]
    claimed = await ledger.claims.claim(offers(*keys))
    large = [done(key, claimed.fence, bytes([n]) * (3 << 20)) for n, key in enumerate(keys)]
    assert await ledger.finals.complete(large[:4]) == set()
    assert await ledger.finals.complete([*large[:1], *large[4:]]) == set()
    assert await ledger.finals.complete_late(large) == set()
    sizes = await ledger_schema.fetch("SELECT octet_length(result) FROM oncebox.entries")
    assert [row[0] for row in sizes] == [3 << 20] * 6
    assert not ledger.fences.held()


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([1, 1, 1], 3, [[1, 1, 1]]),
        ([2, 2, 2], 4, [[2, 2], [2]]),
        ([9, 1, 9], 4, [[9], [1], [9]]),
        ([0, 5, 0, 0], 4, [[0, 5], [0, 0]]),
        ([], 4, [[]]),
    ],
)
def test_portions_are_bounded_and_lose_nothing(sizes: list[int], most: int, expected: list[list[int]]) -> None:
    found = [list(portion) for portion in portions(sizes, sizes, most)]
    assert found == expected
