"""Every write, from every state, with the right fence and with another: what moves, and that nothing else does."""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tests.conformance.making import bring, claim, claim_again, offer
from tests.conformance.stores import Store
from tests.ledger.offers import done, doubted, failed, released
from worker.rules.claims import TRANSITIONS, Kind, State

IN_PROGRESS, COMPLETED, FAILED, UNKNOWN = State
STATES = (None, *State)
Write = Callable[[Store, Any, str, int], Awaitable[bool]]


async def by_claim(store: Store, ledger: Any, key: str, _: int) -> bool:
    return bool(await claim(ledger, offer(store, key)))


async def by_claim_again(store: Store, ledger: Any, key: str, _: int) -> bool:
    return bool(await claim_again(ledger, offer(store, key)))


async def by_complete(_: Store, ledger: Any, key: str, fence: int) -> bool:
    return not await ledger.finals.complete([done(key, fence, b"in time")])


async def by_complete_late(_: Store, ledger: Any, key: str, fence: int) -> bool:
    return not await ledger.finals.complete_late([done(key, fence, b"late")])


async def by_fail(_: Store, ledger: Any, key: str, fence: int) -> bool:
    return not await ledger.finals.fail([failed(key, fence)])


async def by_release(_: Store, ledger: Any, key: str, fence: int) -> bool:
    return not await ledger.finals.release([released(key, fence)])


async def by_doubt(_: Store, ledger: Any, key: str, fence: int) -> bool:
    return not await ledger.finals.doubt([doubted(key, fence)])


# From which states each write moves an entry, and where to.
MOVES: dict[Write, dict[State | None, State]] = {
    by_claim: {None: IN_PROGRESS},
    by_claim_again: {FAILED: IN_PROGRESS},
    by_complete: {IN_PROGRESS: COMPLETED},
    by_complete_late: {IN_PROGRESS: COMPLETED, FAILED: COMPLETED, UNKNOWN: COMPLETED},
    by_fail: {IN_PROGRESS: FAILED, UNKNOWN: FAILED},
    by_release: {IN_PROGRESS: FAILED, UNKNOWN: FAILED},
    by_doubt: {IN_PROGRESS: UNKNOWN},
}
CLAIMS = (by_claim, by_claim_again)
FINALS = [write for write in MOVES if write not in CLAIMS]


async def test_a_write_moves_an_entry_only_from_the_states_it_names(store: Store) -> None:
    ledger = await store.worker()
    for write, before in itertools.product(MOVES, STATES):
        key = f"{write.__name__} {before!r}"
        fence = await bring(store, ledger, key, before)
        after = MOVES[write].get(before)
        assert await write(store, ledger, key, fence) is (after is not None), key
        assert await store.state(key) is (before if after is None else after), key
        if after is not None and write in CLAIMS:
            assert (await store.entry(key)).fence > fence


async def test_a_write_with_another_fence_moves_nothing(store: Store) -> None:
    ledger = await store.worker()
    for write, before in itertools.product(FINALS, State):
        key = f"{write.__name__} {before!r}"
        fence = await bring(store, ledger, key, before)
        entry = await store.entry(key)
        for other in (fence - 1, fence + 1):
            assert not await write(store, ledger, key, other), key
        after = await store.entry(key)
        assert replace(after, due_in=None, expires_in=0) == replace(entry, due_in=None, expires_in=0)


async def test_settling_moves_only_what_is_in_progress(store: Store) -> None:
    victim, survivor = await store.worker(), await store.worker()
    cases = {f"{kind!r} {before!r}": (kind, before) for kind, before in itertools.product(Kind, State)}
    for key, (kind, before) in cases.items():
        await bring(store, victim, key, before, kind)
    entries = {key: await store.entry(key) for key in cases}
    await store.die(victim, survivor)
    await survivor.settling.settle()
    for key, (kind, before) in cases.items():
        entry, after = entries[key], await store.entry(key)
        running = before is IN_PROGRESS
        settled = (UNKNOWN if kind is Kind.EXTERNAL else FAILED) if running else before
        assert (after.state, after.crashes, after.fence) == (settled, int(running), entry.fence), key
        assert after.attempts == entry.attempts


def test_the_writes_make_exactly_the_transitions_of_the_rules() -> None:
    made = {(before, after) for moves in MOVES.values() for before, after in moves.items()}
    pruned: set[tuple[State | None, State | None]] = {(COMPLETED, None), (FAILED, None)}
    assert made == TRANSITIONS - pruned
