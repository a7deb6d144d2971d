"""Doubts: taken by one at a time, settled by a word about the very claim, kept as evidence, reported once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.conformance.making import bring, claim_again, offer
from tests.conformance.stores import LEASE, QUIET, TTL, Store
from tests.ledger.offers import done, doubted, failed, id_of, ok, record
from worker.rules.claims import State
from worker.rules.doubts import Doubt, Evidence, Ruling
from worker.rules.writes import Parking

IN_PROGRESS, COMPLETED, FAILED, UNKNOWN = State
FIRST = 10.0


def executed(key: str, body: bytes = b"found", fence: int | None = None) -> Evidence:
    return Evidence(id_of(key), "probe", ok(body), fence)


def not_executed(key: str, fence: int | None, **more: Any) -> Evidence:
    return Evidence(id_of(key), "probe", None, fence, **more)


async def take(store: Store, ledger: Any, most: int = 100) -> list[Doubt]:
    doubts: list[Doubt] = await ledger.doubts.take(store.plan().operation, most, 60.0)
    return doubts


async def in_doubt(store: Store, ledger: Any, key: str = "k") -> int:
    fence = await bring(store, ledger, key, UNKNOWN)
    await store.pass_time(FIRST + 1, ledger)
    return fence


async def test_a_doubt_is_taken_when_it_is_due_by_one_at_a_time(store: Store) -> None:
    one, other = await store.worker(), await store.worker()
    for n in range(30):
        await bring(store, one, f"k{n}", UNKNOWN)
    operation = store.plan().operation
    assert await one.doubts.due([operation]) == []
    assert await take(store, one) == []
    await store.pass_time(FIRST + 1, one, other)
    assert await one.doubts.due([operation, 99]) == [operation]
    assert await one.doubts.due([99]) == []
    taken = await asyncio.gather(take(store, one, 20), take(store, other, 20))
    rest = await take(store, one)
    ids = [doubt.id for part in (*taken, rest) for doubt in part]
    assert sorted(ids) == sorted(id_of(f"k{n}") for n in range(30)), "each once, and none left out"
    assert await one.doubts.due([operation]) == []
    await store.pass_time(60, one, other)
    assert len(await take(store, other)) == 30, "whoever took them died: they come up again"


async def test_a_taken_doubt_says_what_is_known_about_its_entry(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", UNKNOWN)
    first, later = record(0), record(7, value=b"later")
    for kept in (later, first):
        await ledger.parking.park([Parking(kept, "unknown", id_of("k"), 1)])
    await store.pass_time(FIRST + 1, ledger)
    [doubt] = await take(store, ledger)
    assert (doubt.id, doubt.fence, doubt.probes, doubt.key) == (id_of("k"), fence, 0, b"k")
    assert (doubt.fingerprint, doubt.format, doubt.attempts, doubt.crashes) == (b"f", 1, 0, 0)
    assert doubt.age == pytest.approx(FIRST + 1, abs=5)
    assert doubt.quiet_in == pytest.approx(QUIET + LEASE - FIRST - 1, abs=5)
    assert doubt.parked is not None
    assert (doubt.parked.offset, doubt.parked.value) == (0, b"v"), "the record that was claimed first"
    assert (doubt.topic, doubt.partition, doubt.offset) == ("t", 0, 0)
    assert doubt.evidence is None


async def test_executed_is_believed_at_once_and_wakes_what_waits(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", UNKNOWN)
    await ledger.parking.park([Parking(record(), "unknown", id_of("k"), 1)])
    ruled = await ledger.doubts.rule(executed("k", fence=fence))
    assert (ruled.ruling, ruled.state) == (Ruling.SETTLED, COMPLETED)
    entry = await store.entry("k")
    assert (entry.state, entry.result, entry.due_in) == (COMPLETED, ok(b"found"), None)
    assert await store.doubts() == {}
    [(_, due_in)] = (await store.parked()).values()
    assert due_in is not None
    assert due_in <= 0
    [event] = await store.history()
    assert event[:3] == (id_of("k"), "probe", fence)
    again = await ledger.doubts.rule(executed("k", b"other", fence=fence))
    assert (again.ruling, again.state) == (Ruling.COMPLETED, COMPLETED)
    assert (await store.entry("k")).result == ok(b"found"), "completed is immutable"


async def test_not_executed_is_believed_only_when_asked_after_the_quiet_time(store: Store) -> None:
    ledger = await store.worker()
    fence = await in_doubt(store, ledger)
    await ledger.parking.park([Parking(record(), "unknown", id_of("k"), 1)])
    await store.pass_time(QUIET + LEASE, ledger)
    # The quiet time is over, but the question was asked before.
    asked_at = await ledger.doubts.now() - timedelta(seconds=2 * FIRST)
    ruled = await ledger.doubts.rule(not_executed("k", fence, asked_at=asked_at))
    assert (ruled.ruling, ruled.state) == (Ruling.EARLY, UNKNOWN)
    assert await store.state("k") is UNKNOWN
    [late] = await take(store, ledger)
    assert late.quiet_in <= 0
    ruled = await ledger.doubts.rule(not_executed("k", fence, asked_at=late.taken_at))
    assert (ruled.ruling, ruled.state) == (Ruling.SETTLED, FAILED)
    entry = await store.entry("k")
    assert (entry.state, entry.attempts) == (FAILED, 0)
    assert entry.due_in is not None
    assert entry.due_in <= 0
    assert await store.doubts() == {}
    [(_, due_in)] = (await store.parked()).values()
    assert due_in is not None
    assert due_in <= 0
    assert set(await claim_again(ledger, offer(store, "k"))) == {"k"}


async def test_an_operator_may_force_not_executed(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", UNKNOWN)
    now = await ledger.doubts.now()
    assert (await ledger.doubts.rule(not_executed("k", fence, asked_at=now))).ruling is Ruling.EARLY
    assert (await ledger.doubts.rule(not_executed("k", fence, asked_at=now))).quiet_in == pytest.approx(
        QUIET + LEASE, abs=5
    )
    assert (await ledger.doubts.rule(not_executed("k", fence, asked_at=now, forced=True))).ruling is Ruling.SETTLED


# What a word does in each state: executed with and without the fence, not executed with it (forced).
WORDS: dict[State | None, tuple[Ruling, Ruling]] = {
    None: (Ruling.ABSENT, Ruling.ABSENT),
    IN_PROGRESS: (Ruling.KEPT, Ruling.REFUSED),
    COMPLETED: (Ruling.COMPLETED, Ruling.COMPLETED),
    FAILED: (Ruling.SETTLED, Ruling.REFUSED),
    UNKNOWN: (Ruling.SETTLED, Ruling.SETTLED),
}


async def test_a_word_moves_an_entry_only_from_the_states_it_may_leave(store: Store) -> None:
    ledger = await store.worker()
    for state, (by_executed, by_not_executed) in WORDS.items():
        for how in ("without fence", "with fence", "not executed"):
            key = f"{how} {state!r}"
            fence = await bring(store, ledger, key, state)
            words = {
                "without fence": executed(key),
                "with fence": executed(key, fence=fence),
                "not executed": not_executed(key, fence, forced=True),
            }
            ruled = await ledger.doubts.rule(words[how])
            expected = by_not_executed if how == "not executed" else by_executed
            after = {Ruling.SETTLED: FAILED if how == "not executed" else COMPLETED}.get(expected, state)
            assert (ruled.ruling, ruled.state) == (expected, after), key
            assert await store.state(key) is after, key


async def test_a_word_about_another_claim_changes_nothing_and_is_kept(store: Store) -> None:
    ledger = await store.worker()
    for state in State:
        key = f"{state!r}"
        fence = await bring(store, ledger, key, state)
        entry, told = await store.entry(key), len(await store.history())
        for word in (executed(key, fence=fence - 1), not_executed(key, fence + 1, forced=True)):
            ruled = await ledger.doubts.rule(word)
            assert (ruled.ruling, ruled.state, ruled.fence) == (Ruling.REFUSED, state, fence)
        assert (await store.entry(key)).state is entry.state
        kept = (await store.history())[told:]
        assert [(e[2], e[3]) for e in kept] == [(fence - 1, b"found"), (fence + 1, None)]


async def test_evidence_that_came_early_is_found_when_the_entry_falls_into_doubt(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", IN_PROGRESS)
    assert (await ledger.doubts.rule(executed("k"))).ruling is Ruling.KEPT
    assert (await store.entry("k")).state is IN_PROGRESS
    await ledger.finals.doubt([doubted("k", fence)])
    await store.pass_time(FIRST + 1, ledger)
    [doubt] = await take(store, ledger)
    assert doubt.evidence == ok(b"found")
    assert (await ledger.doubts.rule(Evidence(doubt.id, "settle", doubt.evidence, doubt.fence))).state is COMPLETED


async def test_a_late_settlement_keeps_its_evidence_for_a_full_ttl(store: Store) -> None:
    ledger = await store.worker()
    fences = {key: await bring(store, ledger, key, UNKNOWN) for key in ("a", "b")}
    await store.pass_time(TTL - 60, ledger)
    await ledger.doubts.rule(executed("a", fence=fences["a"]))
    await ledger.doubts.rule(not_executed("b", fences["b"], forced=True))
    for key in fences:
        assert (await store.entry(key)).expires_in == pytest.approx(TTL, abs=10)


async def test_every_probe_is_on_record_and_moves_the_next_one(store: Store) -> None:
    ledger = await store.worker()
    fence = await in_doubt(store, ledger)
    [doubt] = await take(store, ledger)
    await ledger.doubts.note(doubt, "unknown: ConnectionError", again_in=20.0)
    seen = (await store.doubts())[id_of("k")]
    assert seen.probes == 1
    assert seen.due_in == pytest.approx(20, abs=5)
    [happened] = await ledger.doubts.history(id_of("k"))
    assert (happened.event, happened.fence, happened.detail) == ("probe", fence, "unknown: ConnectionError")
    await store.pass_time(25, ledger)
    [doubt] = await take(store, ledger)
    assert doubt.probes == 1
    await ledger.doubts.put_off(doubt, 40.0)
    seen = (await store.doubts())[id_of("k")]
    assert seen.probes == 1
    assert seen.due_in == pytest.approx(40, abs=5)


async def test_a_reported_doubt_is_asked_about_no_more_and_can_still_be_settled(store: Store) -> None:
    ledger = await store.worker()
    fence = await in_doubt(store, ledger)
    [doubt] = await take(store, ledger)
    await ledger.doubts.reported(doubt, "dead letter in dlq.t")
    await ledger.doubts.reported(doubt, "dead letter in dlq.t")
    await store.pass_time(200, ledger)
    assert await take(store, ledger) == []
    assert (await store.doubts())[id_of("k")].reported
    assert await store.state("k") is UNKNOWN
    assert [e[1] for e in await store.history()] == ["reported"]
    assert (await ledger.doubts.rule(executed("k", fence=fence))).ruling is Ruling.SETTLED


async def test_a_late_result_after_not_executed_and_a_new_claim_is_refused_by_fence_and_kept(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", UNKNOWN)
    await ledger.doubts.rule(not_executed("k", fence, forced=True))
    again = (await claim_again(ledger, offer(store, "k")))["k"].fence
    assert await ledger.finals.complete_late([done("k", fence, b"late")]) == {id_of("k")}
    assert (await store.entry("k")).state is IN_PROGRESS
    assert (id_of("k"), "result_refused", fence, b"late") in await store.history()
    assert await ledger.finals.fail([failed("k", fence)]) == {id_of("k")}
    assert await ledger.finals.complete([done("k", again)]) == set()


async def test_a_late_result_after_another_verdict_is_kept_and_changes_nothing(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", UNKNOWN)
    await ledger.doubts.rule(executed("k", b"verdict", fence=fence))
    assert await ledger.finals.complete_late([done("k", fence, b"late")]) == {id_of("k")}
    assert await ledger.finals.complete_late([done("k", fence, b"verdict")]) == set()
    assert (await store.entry("k")).result == ok(b"verdict")
    assert (id_of("k"), "result_differs", fence, b"late") in await store.history()


async def test_the_quiet_time_counts_with_the_lease_of_the_worker_that_died(store: Store) -> None:
    victim, survivor = await store.worker(lease=LEASE * 2), await store.worker()
    await bring(store, victim, "k", IN_PROGRESS)
    await store.end_session(victim)
    await survivor.settling.settle()
    assert (await store.doubts())[id_of("k")].quiet_in == pytest.approx(QUIET + LEASE * 2, abs=5)


async def test_a_letter_owed_without_an_operation_is_taken_by_its_topic(store: Store) -> None:
    ledger = await store.worker()
    owed = Parking(record(3, topic="t"), "unwritable:no_handler", None, None, 5.0, owed=True, detail="none of 2 did")
    kept = Parking(record(4, topic="t"), "too_large:no_handler", None, None, None, owed=True)
    assert await ledger.parking.park([owed, kept]) == set()
    assert await ledger.parking.take_due([1], 10, 60.0, topics=["t"]) == []
    await store.pass_time(6, ledger)
    assert await ledger.parking.take_due([1], 10, 60.0, topics=["other"]) == []
    [taken] = await ledger.parking.take_due([1], 10, 60.0, topics=["t"])
    assert (taken.record.offset, taken.operation, taken.detail) == (3, None, "none of 2 did")
    assert await ledger.parking.take_due([1], 10, 60.0, topics=["t"]) == []


async def test_what_is_owed_a_result_holds_its_completed_entry(store: Store) -> None:
    ledger = await store.worker()
    await bring(store, ledger, "k", COMPLETED)
    owed = Parking(record(), "unwritable:result", id_of("k"), 1, 5.0, owed=True)
    assert await ledger.parking.park([owed]) == set()
    assert await ledger.parking.park([owed]) == set()
    assert (await store.entry("k")).held == 1
    gone = Parking(record(), "unwritable:result", id_of("gone"), 1, 5.0, owed=True)
    assert await ledger.parking.park([gone]) == {gone.place}, "without its entry nothing could be paid"
    await ledger.parking.finish([owed.place])
    assert (await store.entry("k")).held == 0
