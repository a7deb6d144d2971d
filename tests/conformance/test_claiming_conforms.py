"""Claims and look-ups."""

import pytest

from tests.conformance.making import bring, claim, claim_again, offer, row
from tests.conformance.stores import TTL, Store
from tests.ledger.offers import Offer, done, doubted, failed, id_of, released
from worker.rules.claims import Kind, State


async def test_absent_keys_are_won_together_under_one_fence_and_stored_as_offered(store: Store) -> None:
    ledger = await store.worker()
    offers = [Offer(key, store.plan(Kind.REPEATABLE), fingerprint=f) for key, f in (("a", b"1"), ("b", None))]
    offers[0].stored_tenant = b"tenant"
    offers[1].stored_key = None
    claimed = await ledger.claims.claim(offers)
    assert claimed.all_won
    won = [claimed.winner(o.id) for o in offers]
    assert [(w.fence, w.attempts, w.crashes, w.failed_at) for w in won if w] == [(claimed.fence, 0, 0, None)] * 2
    first, second = await store.entry("a"), await store.entry("b")
    assert (first.state, first.kind, first.fence) == (State.IN_PROGRESS, Kind.REPEATABLE, claimed.fence)
    assert (first.fingerprint, first.tenant, first.key) == (b"1", b"tenant", b"a")
    assert (second.fingerprint, second.tenant, second.key) == (None, None, None)
    assert first.expires_in == pytest.approx(TTL, abs=5)
    assert (first.attempts, first.crashes, first.held, first.due_in, first.error) == (0, 0, 0, None, None)
    assert set(await store.open_claims()) == {claimed.fence}


@pytest.mark.parametrize("look_first", [False, True])
async def test_of_mixed_keys_the_absent_are_won_and_the_others_come_with_their_rows(
    store: Store, look_first: bool
) -> None:
    ledger, other = await store.worker(), await store.worker()
    fences = {s: await bring(store, other, s.name, s) for s in State}
    offers = [offer(store, "new"), *(offer(store, s.name) for s in State)]
    claimed = await ledger.claims.claim(offers, look_first=look_first)
    assert claimed.winner(id_of("new")) is not None
    assert not claimed.all_won
    for state, fence in fences.items():
        assert claimed.winner(id_of(state.name)) is None
        found = claimed.rows[id_of(state.name)]
        assert (found.state, found.fence, found.fingerprint, found.format) == (state, fence, b"f", 1)
    assert claimed.rows[id_of("COMPLETED")].result.body == b"done"
    assert claimed.rows[id_of("UNKNOWN")].result is None
    assert claimed.rows[id_of("FAILED_RETRYABLE")].attempts == 1
    assert claimed.rows[id_of("FAILED_RETRYABLE")].failed_at is not None


async def test_a_look_up_tells_what_there_is_and_leaves_out_what_there_is_not(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "a", State.IN_PROGRESS)
    await ledger.finals.fail([failed("a", fence, delay=100)])
    found = await ledger.claims.look_up([id_of("a"), id_of("nobody")])
    assert set(found) == {id_of("a")}
    assert found[id_of("a")].due_in == pytest.approx(100, abs=5)
    assert await ledger.claims.look_up([]) == {}


async def test_fences_of_a_key_rise_with_every_claim_whoever_claims(store: Store) -> None:
    ledgers = [await store.worker(), await store.worker()]
    # The second worker's block is the younger one: the first must draw anew to get above it.
    fence = await bring(store, ledgers[1], "warm up", State.COMPLETED)
    fence = await bring(store, ledgers[0], "k", State.FAILED_RETRYABLE)
    for turn in range(4):
        won = await claim_again(ledgers[(turn + 1) % 2], offer(store, "k"))
        assert won["k"].fence > fence
        fence = won["k"].fence
        assert await ledgers[turn % 2].finals.release([released("k", fence)]) == set()


async def test_claiming_again_waits_for_the_due_time_and_carries_the_counters(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.IN_PROGRESS)
    await ledger.finals.fail([failed("k", fence, delay=10)])
    assert await claim_again(ledger, offer(store, "k")) == {}
    await store.pass_time(11, ledger)
    won = (await claim_again(ledger, offer(store, "k", Kind.REPEATABLE, ttl=2 * TTL)))["k"]
    assert (won.attempts, won.crashes) == (1, 0)
    assert won.failed_at is not None
    entry = await store.entry("k")
    assert (entry.state, entry.kind, entry.due_in) == (State.IN_PROGRESS, Kind.REPEATABLE, None)
    assert entry.expires_in == pytest.approx(2 * TTL, abs=5)


async def test_claiming_again_is_refused_for_another_fingerprint_or_at_a_cap(store: Store) -> None:
    ledger = await store.worker(crash_cap=2)
    await bring(store, ledger, "k", State.FAILED_RETRYABLE)
    other = offer(store, "k")
    other.fingerprint = b"other"
    assert await claim_again(ledger, other) == {}
    other.fingerprint = None
    assert await claim_again(ledger, other) == {}
    assert await claim_again(ledger, offer(store, "k", cap=1)) == {}
    assert set(await claim_again(ledger, offer(store, "k", cap=2))) == {"k"}


async def test_claiming_again_is_refused_at_the_cap_of_crashes(store: Store) -> None:
    survivor = await store.worker(crash_cap=2)
    for crashes in (1, 2):
        victim = await store.worker(crash_cap=2)
        repeatable = offer(store, "k", Kind.REPEATABLE)
        won = await claim(victim, repeatable) if crashes == 1 else await claim_again(victim, repeatable)
        assert set(won) == {"k"}
        await store.die(victim, survivor)
        await survivor.settling.settle()
        assert (await store.entry("k")).crashes == crashes
    assert await claim_again(survivor, offer(store, "k", Kind.REPEATABLE)) == {}


async def test_a_claim_whose_answer_was_lost_is_retaken_under_a_new_fence(store: Store) -> None:
    ledger = await store.worker()
    await bring(store, ledger, "theirs", State.COMPLETED)
    store.lose_answers(ledger, ["claim"])
    won = await claim(ledger, offer(store, "k"), offer(store, "theirs"))
    assert set(won) == {"k"}
    entry = await store.entry("k")
    assert (entry.state, entry.fence) == (State.IN_PROGRESS, won["k"].fence)
    assert len([fence for fence in await store.open_claims() if fence <= won["k"].fence]) >= 2
    assert await ledger.finals.complete([done("k", won["k"].fence)]) == set()


async def test_a_claim_made_again_whose_answer_was_lost_is_retaken_with_its_counters(store: Store) -> None:
    ledger = await store.worker()
    await bring(store, ledger, "k", State.FAILED_RETRYABLE)
    store.lose_answers(ledger, ["claim_again"])
    assert await ledger.claims.claim_again([offer(store, "k")]) == {}
    assert await store.state("k") is State.IN_PROGRESS
    won = await claim(ledger, offer(store, "k"))
    assert (won["k"].attempts, won["k"].fence) == (1, (await store.entry("k")).fence)


async def test_a_lost_claim_is_not_retaken_for_another_payload_nor_by_another_worker(store: Store) -> None:
    ledger, other = await store.worker(), await store.worker()
    await bring(store, ledger, "k", State.FAILED_RETRYABLE)
    store.lose_answers(ledger, ["claim_again"])
    assert await ledger.claims.claim_again([offer(store, "k")]) == {}
    assert await claim(other, offer(store, "k")) == {}
    misuse = offer(store, "k")
    misuse.fingerprint = b"other"
    assert await claim(ledger, misuse) == {}
    assert set(await claim(ledger, offer(store, "k"))) == {"k"}


async def test_a_lost_claim_that_nobody_offers_again_is_a_stray_and_is_released(store: Store) -> None:
    ledger = await store.worker()
    await bring(store, ledger, "k", State.FAILED_RETRYABLE)
    await bring(store, ledger, "runs", State.IN_PROGRESS)
    store.lose_answers(ledger, ["claim_again"])
    assert await ledger.claims.claim_again([offer(store, "k")]) == {}
    assert await ledger.release_strays() == 1
    entry = await store.entry("k")
    assert (entry.state, entry.attempts) == (State.FAILED_RETRYABLE, 1)
    assert await store.state("runs") is State.IN_PROGRESS
    assert await ledger.release_strays() == 0


async def test_an_ended_session_claims_nothing(store: Store) -> None:
    ledger = await store.worker()
    await bring(store, ledger, "failed", State.FAILED_RETRYABLE)
    await store.end_session(ledger)
    claimed = await ledger.claims.claim([offer(store, "k")])
    assert claimed.winner(id_of("k")) is None
    assert claimed.rows == {}
    assert await store.state("k") is None


async def test_the_open_claims_of_finished_batches_are_forgotten(store: Store) -> None:
    ledger = await store.worker()
    won = await claim(ledger, offer(store, "a"), offer(store, "b"))
    fence = won["a"].fence
    await ledger.finals.complete([done("a", fence)])
    await ledger.finals.tidy()
    assert set(await store.open_claims()) == {fence}
    await ledger.finals.doubt([doubted("b", fence)])
    await ledger.finals.tidy()
    assert await store.open_claims() == {}


async def test_a_row_says_when_it_failed_first(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.FAILED_RETRYABLE)
    first = (await row(ledger, "k")).failed_at
    fence = (await claim_again(ledger, offer(store, "k")))["k"].fence
    await ledger.finals.fail([failed("k", fence, error="again")])
    again = await row(ledger, "k")
    assert (again.failed_at, again.attempts) == (first, 2)
    assert (await store.entry("k")).error == "again"
