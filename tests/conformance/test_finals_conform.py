"""Final writes: counters, due times, late results, refusals."""

import pytest

from tests.conformance.making import bring, claim, claim_again, offer
from tests.conformance.stores import LEASE, QUIET, TTL, Store
from tests.ledger.offers import done, doubted, failed, id_of, ok, record, released
from worker.rules.claims import Kind, State, Status
from worker.rules.results import ContentType, Result
from worker.rules.writes import Done, Parking

RESULTS = [
    Result(Status.OK, ContentType.NONE, None),
    Result(Status.OK, ContentType.JSON, b'{"a":1}'),
    Result(Status.OK, ContentType.BYTES, b"\x00\xff"),
    Result(Status.REJECTED, ContentType.JSON, b"{}", "code"),
    Result(Status.REJECTED, ContentType.JSON, b"{}", "\0 and \ud800"),
    Result(Status.UNSTORABLE, ContentType.TEXT, b"too large"),
]


async def test_a_result_comes_back_as_it_was_stored(store: Store) -> None:
    ledger = await store.worker()
    for number, result in enumerate(RESULTS):
        key = str(number)
        fence = await bring(store, ledger, key, State.IN_PROGRESS)
        assert await ledger.finals.complete([Done(id_of(key), fence, result)]) == set()
        stored = (await ledger.claims.look_up([id_of(key)]))[id_of(key)].result
        if result.code is None or result.code.isprintable():
            assert stored == result
        else:
            assert stored.code == "\ufffd and ?"


async def test_a_batch_is_decided_row_by_row(store: Store) -> None:
    ledger = await store.worker()
    fences = {s: await bring(store, ledger, s.name, s) for s in State}
    undecided = await ledger.finals.complete([done(s.name, fence) for s, fence in fences.items()])
    assert undecided == {id_of(s.name) for s in State if s not in (State.IN_PROGRESS, State.COMPLETED)}
    assert await store.state("IN_PROGRESS") is State.COMPLETED


async def test_a_failure_counts_and_waits(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.IN_PROGRESS)
    assert await ledger.finals.fail([failed("k", fence, delay=20, error="Nul\0and \ud800")]) == set()
    entry = await store.entry("k")
    assert (entry.attempts, entry.crashes, entry.failed) == (1, 0, True)
    assert entry.due_in == pytest.approx(20, abs=5)
    assert entry.error == "Nul\ufffdand ?"


async def test_a_release_counts_nothing_and_is_due_at_once(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.IN_PROGRESS)
    assert await ledger.finals.release([released("k", fence)]) == set()
    entry = await store.entry("k")
    assert (entry.attempts, entry.crashes, entry.failed, entry.error) == (0, 0, False, None)
    assert set(await claim_again(ledger, offer(store, "k"))) == {"k"}


async def test_a_doubt_is_written_beside_the_entry(store: Store) -> None:
    ledger = await store.worker(first_probe=7.0)
    fence = await bring(store, ledger, "k", State.UNKNOWN)
    entry = await store.entry("k")
    assert (entry.attempts, entry.failed, entry.error, entry.due_in) == (0, True, "boom", None)
    [(id_, doubt)] = (await store.doubts()).items()
    assert (id_, doubt.fence) == (id_of("k"), fence)
    assert doubt.quiet_in == pytest.approx(QUIET + LEASE, abs=5)
    assert doubt.due_in == pytest.approx(7, abs=5)


async def test_the_very_claim_in_doubt_may_end_with_proof_which_is_due_now_and_counts_no_attempt(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.UNKNOWN)
    await ledger.parking.park([Parking(record(), "unknown", id_of("k"), 1)])
    assert await ledger.finals.fail([failed("k", fence, delay=100)]) == set()
    entry = await store.entry("k")
    assert (entry.state, entry.attempts) == (State.FAILED_RETRYABLE, 0)
    assert entry.due_in is not None
    assert entry.due_in <= 0
    assert await store.doubts() == {}
    [(_, due_in)] = (await store.parked()).values()
    assert due_in is not None
    assert due_in <= 0


@pytest.mark.parametrize("before", [State.UNKNOWN, State.FAILED_RETRYABLE], ids=lambda s: s.name)
async def test_a_late_result_of_the_same_claim_is_stored_and_wakes_who_waits(store: Store, before: State) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", before)
    due = None if before is State.UNKNOWN else 100.0
    await ledger.parking.park([Parking(record(), "waits", id_of("k"), 1, due)])
    assert await ledger.finals.complete_late([done("k", fence, b"late")]) == set()
    entry = await store.entry("k")
    assert (entry.state, entry.due_in, entry.result) == (State.COMPLETED, None, ok(b"late"))
    assert (await store.doubts(), await store.history()) == ({}, [])
    [(_, due_in)] = (await store.parked()).values()
    assert due_in is not None
    assert due_in <= 0


async def test_a_late_result_keeps_the_entry_for_a_whole_ttl_if_less_than_half_was_left(store: Store) -> None:
    ledger = await store.worker()
    early, late = [(await claim(ledger, offer(store, key)))[key].fence for key in ("early", "late")]
    await store.pass_time(TTL / 4, ledger)
    await ledger.finals.complete_late([done("early", early)])
    await store.pass_time(TTL / 2, ledger)
    await ledger.finals.complete_late([done("late", late)])
    assert (await store.entry("early")).expires_in == pytest.approx(TTL / 4, abs=60)
    assert (await store.entry("late")).expires_in == pytest.approx(TTL, abs=60)


@pytest.mark.parametrize("in_doubt", [False, True], ids=["in progress", "unknown"])
@pytest.mark.parametrize("how", ["fail", "release"])
async def test_so_does_late_proof_that_nothing_was_executed(store: Store, how: str, in_doubt: bool) -> None:
    ledger = await store.worker()

    async def end(key: str, fence: int) -> None:
        if in_doubt:
            await ledger.finals.doubt([doubted(key, fence)])
        if how == "fail":
            await ledger.finals.fail([failed(key, fence)])
        else:
            await ledger.finals.release([released(key, fence)])

    early, late = [(await claim(ledger, offer(store, key)))[key].fence for key in ("early", "late")]
    await store.pass_time(TTL / 4, ledger)
    await end("early", early)
    await store.pass_time(TTL / 2, ledger)
    await end("late", late)
    assert (await store.entry("early")).expires_in == pytest.approx(TTL / 4, abs=5)
    assert (await store.entry("late")).expires_in == pytest.approx(TTL, abs=5)


async def test_a_result_refused_by_fence_is_kept_in_the_history_once(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.FAILED_RETRYABLE)
    await claim_again(ledger, offer(store, "k"))
    for _ in range(2):
        assert await ledger.finals.complete_late([done("k", fence, b"second effect")]) == {id_of("k")}
    assert await store.history() == [(id_of("k"), "result_refused", fence, b"second effect")]
    assert await store.state("k") is State.IN_PROGRESS


async def test_a_result_for_an_entry_that_is_gone_is_kept_in_the_history(store: Store) -> None:
    ledger = await store.worker()
    assert await ledger.finals.complete_late([done("gone", 5, b"r")]) == {id_of("gone")}
    assert await store.history() == [(id_of("gone"), "result_refused", 5, b"r")]


async def test_repeating_a_completion_whose_answer_was_lost_is_harmless(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.COMPLETED)
    again = done("k", fence)
    assert await ledger.finals.complete([again]) == set()
    assert await ledger.finals.complete_late([again]) == set()
    assert await store.history() == []
    assert await ledger.finals.complete_late([done("k", fence, b"another")]) == {id_of("k")}
    assert (await store.entry("k")).result == ok()


async def test_repeating_a_failure_counts_once(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.FAILED_RETRYABLE)
    assert await ledger.finals.fail([failed("k", fence)]) == {id_of("k")}
    assert await ledger.finals.release([released("k", fence)]) == {id_of("k")}
    assert await ledger.finals.doubt([doubted("k", fence)]) == {id_of("k")}
    assert (await store.entry("k")).attempts == 1


async def test_a_doubt_may_arise_again_with_a_later_claim(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.UNKNOWN)
    await ledger.finals.fail([failed("k", fence)])
    fence = (await claim_again(ledger, offer(store, "k", Kind.EXTERNAL)))["k"].fence
    await ledger.finals.doubt([doubted("k", fence, "again")])
    assert {doubt.fence for doubt in (await store.doubts()).values()} == {fence}
    assert (await store.entry("k")).error == "again"
