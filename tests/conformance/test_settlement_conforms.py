"""Sessions: who may end whom, what is settled how, and what becomes of a worker that comes back."""

from typing import Any

import pytest

from tests.conformance.making import bring, claim, claim_again, offer
from tests.conformance.stores import LEASE, QUIET, TTL, Store
from tests.ledger.offers import done, failed, id_of, ok, record, released
from tests.waiting import eventually
from worker.rules.claims import Kind, State
from worker.rules.writes import Parking


async def test_a_dead_workers_claims_are_settled_by_kind(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker(first_probe=7.0)
    fences = {k: await bring(store, victim, k.name, State.IN_PROGRESS, k) for k in Kind}
    mine = await bring(store, survivor, "mine", State.IN_PROGRESS)
    await victim.parking.park([Parking(record(), "hold", id_of("REPEATABLE"), 1, due=10_000.0)])
    await store.die(victim, survivor)
    counts = await survivor.settling.settle()
    assert counts == {State.UNKNOWN: 1, State.FAILED_RETRYABLE: 2}
    for kind, fence in fences.items():
        entry = await store.entry(kind.name)
        assert (entry.fence, entry.crashes, entry.attempts, entry.failed) == (fence, 1, 0, True)
        assert entry.error == "the worker died"
        if kind is Kind.EXTERNAL:
            assert (entry.state, entry.due_in) == (State.UNKNOWN, None)
        else:
            assert entry.state is State.FAILED_RETRYABLE
            assert entry.due_in is not None
            assert entry.due_in <= 0
    [(id_, doubt)] = (await store.doubts()).items()
    assert (id_, doubt.fence) == (id_of("EXTERNAL"), fences[Kind.EXTERNAL])
    assert doubt.quiet_in == pytest.approx(QUIET + LEASE, abs=5)
    assert doubt.due_in == pytest.approx(7, abs=5)
    [(_, due_in)] = (await store.parked()).values()
    assert due_in is not None
    assert due_in <= 0
    assert (await store.entry("mine")).state is State.IN_PROGRESS
    assert set(await store.open_claims()) == {mine}
    assert await survivor.settling.settle() == {}


async def test_a_settlement_keeps_an_entry_that_would_soon_expire(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker()
    await claim(victim, offer(store, "k", ttl=LEASE * 3))
    await store.die(victim, survivor)
    await survivor.settling.settle()
    assert (await store.entry("k")).expires_in == pytest.approx(TTL, abs=5)


async def test_results_of_the_dead_are_welcome_as_long_as_nobody_claimed_again(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker()
    fences = {k: await bring(store, victim, k.name, State.IN_PROGRESS, k) for k in Kind}
    await store.die(victim, survivor)
    await survivor.settling.settle()
    assert set(await claim_again(survivor, offer(store, "TRANSACTIONAL", Kind.TRANSACTIONAL))) == {"TRANSACTIONAL"}
    late = [done(k.name, fence, b"late") for k, fence in fences.items()]
    assert await victim.finals.complete(late) == {id_of(k.name) for k in Kind}
    assert await victim.finals.complete_late(late) == {id_of("TRANSACTIONAL")}
    assert (await store.entry("EXTERNAL")).result == (await store.entry("REPEATABLE")).result == ok(b"late")
    assert [event[:3] for event in await store.history()] == [
        (id_of("TRANSACTIONAL"), "result_refused", fences[Kind.TRANSACTIONAL])
    ]


async def test_a_settled_doubt_may_end_by_late_proof(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker()
    fence = await bring(store, victim, "k", State.IN_PROGRESS)
    await store.die(victim, survivor)
    await survivor.settling.settle()
    assert await victim.finals.fail([failed("k", fence, delay=100)]) == set()
    entry = await store.entry("k")
    assert (entry.state, entry.attempts, entry.crashes) == (State.FAILED_RETRYABLE, 0, 1)
    assert set(await claim_again(survivor, offer(store, "k"))) == {"k"}


async def test_a_settled_claim_that_never_started_is_released_by_its_worker(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker()
    fence = await bring(store, victim, "k", State.IN_PROGRESS)
    await store.die(victim, survivor)
    await survivor.settling.settle()
    await survivor.parking.park([Parking(record(), "unknown", id_of("k"), 1)])
    assert await victim.finals.release([released("k", fence)]) == set()
    entry = await store.entry("k")
    assert (entry.state, entry.attempts, entry.crashes) == (State.FAILED_RETRYABLE, 0, 1)
    assert await store.doubts() == {}
    [(_, due_in)] = (await store.parked()).values()
    assert due_in is not None
    assert due_in <= 0


async def test_only_a_worker_that_was_steady_for_a_lease_ends_others(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker()
    await bring(store, victim, "k", State.IN_PROGRESS)
    # Both lapse, as in an outage of the database; the survivor comes back first, but must wait a whole lease.
    await store.pass_time(2 * LEASE)
    assert await survivor.settling.end_lapsed() == []
    await store.renew(survivor)
    assert await survivor.settling.end_lapsed() == []
    await store.pass_time(LEASE - 5, survivor)
    assert await survivor.settling.end_lapsed() == []
    await store.pass_time(10, survivor)
    assert await survivor.settling.end_lapsed() == [victim.session.id]


async def test_a_worker_that_comes_back_before_it_was_ended_keeps_its_claims(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker()
    fence = await bring(store, victim, "k", State.IN_PROGRESS)
    await store.pass_time(2 * LEASE, survivor)
    await store.renew(victim)
    assert await survivor.settling.end_lapsed() == []
    assert await survivor.settling.settle() == {}
    assert await victim.finals.complete([done("k", fence)]) == set()


async def test_ending_a_session_settles_nothing_by_itself(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker()
    fence = await bring(store, victim, "k", State.IN_PROGRESS)
    await store.die(victim, survivor)
    assert (await store.entry("k")).state is State.IN_PROGRESS
    assert await victim.finals.complete([done("k", fence)]) == set()
    assert await survivor.settling.settle() == {}
    assert (await store.entry("k")).state is State.COMPLETED


async def test_a_worker_whose_session_was_ended_carries_its_claims_over(store: Store) -> None:
    lost, survivor = await store.worker(), await store.worker()
    fence = await bring(store, lost, "k", State.IN_PROGRESS)
    old = lost.session.id
    await store.end_session(lost)
    await come_back(lost)
    assert lost.session.id != old
    assert await store.open_claims() == {fence: lost.session.id}
    assert await survivor.settling.settle() == {}
    assert lost.session.covers(fence)
    assert await lost.finals.complete([done("k", fence)]) == set()


async def test_what_was_settled_before_the_worker_came_back_may_not_start_any_more(store: Store) -> None:
    lost, survivor = await store.worker(), await store.worker()
    settled = await bring(store, lost, "settled", State.IN_PROGRESS)
    await store.end_session(lost)
    await survivor.settling.settle()
    await come_back(lost)
    assert lost.session.safe()
    assert not lost.session.covers(settled)
    later = await bring(store, lost, "later", State.IN_PROGRESS)
    assert lost.session.covers(later)
    assert await lost.finals.complete_late([done("settled", settled)]) == set()


async def test_a_clean_stop_leaves_what_it_had_open_to_be_settled(store: Store) -> None:
    leaving, staying = await store.worker(), await store.worker()
    await bring(store, leaving, "k", State.IN_PROGRESS, Kind.REPEATABLE)
    assert leaving.session.safe()
    await leaving.close()
    assert not leaving.session.safe()
    assert await staying.settling.settle() == {State.FAILED_RETRYABLE: 1}
    assert await staying.settling.end_lapsed() == []


async def come_back(ledger: Any) -> None:
    """Let the worker notice that its session has ended, as a refused claim would."""
    session = ledger.session
    old = session.id
    session.check()
    if hasattr(session, "renew"):
        await session.renew()
    await eventually(lambda: session.id != old and session.safe())
