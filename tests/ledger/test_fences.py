"""Fences rise with every claim of a key, whoever claims it, and however often it was forgotten."""

import asyncio

import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.offers import done, failed, id_of, offers, released
from tests.ledger.wire import Loss, Wire
from worker.ledger.fences import BLOCK, LIFETIME, Fences
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def claim_again(ledger: PostgresLedger, key: str) -> int:
    """As the engine does: the second try comes from a fresh block if the first was below the row's fence."""
    for _ in range(2):
        won = await ledger.claims.claim_again(offers(key, kind=Kind.REPEATABLE))
        if won:
            return won[id_of(key)].fence
    raise AssertionError("not won at the second try")


async def test_fences_rise_over_every_way_to_claim(open_ledger: OpenLedger, wire: Wire) -> None:
    one, other = await open_ledger(wire.url), await open_ledger()
    await other.claims.claim(offers("their block is the older one"))
    seen = [(await one.claims.claim(offers("k", kind=Kind.REPEATABLE))).fence]
    for ledger in (one, other, other, one):
        await one.finals.fail([failed("k", seen[-1])])
        seen.append(await claim_again(ledger, "k"))
    await one.finals.release([released("k", seen[-1])])
    wire.lose(Loss.ANSWER, one.queries["claim_again"])
    assert await one.claims.claim_again(offers("k", kind=Kind.REPEATABLE)) == {}
    won = (await one.claims.claim(offers("k", kind=Kind.REPEATABLE))).winner(id_of("k"))
    assert won is not None
    seen.append(won.fence)
    assert seen == sorted(set(seen))


async def test_a_fence_below_the_rows_is_refused_and_the_next_try_comes_from_a_fresh_block(
    open_ledger: OpenLedger,
) -> None:
    older, newer = await open_ledger(), await open_ledger()
    low = (await older.claims.claim(offers("draws a block"))).fence
    high = (await newer.claims.claim(offers("k"))).fence
    assert high > low + 1
    await newer.finals.release([released("k", high)])
    assert await older.claims.claim_again(offers("k")) == {}
    won = await older.claims.claim_again(offers("k"))
    assert won[id_of("k")].fence > high


async def test_fences_rise_across_a_prune_from_a_block_that_was_drawn_before(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    older, newer = await open_ledger(), await open_ledger()
    clock = Clock()
    older.fences.now = clock
    await older.claims.claim(offers("draws a block"))
    high = (await newer.claims.claim(offers("k"))).fence
    await newer.finals.complete([done("k", high)])
    # A prune comes a TTL and the slack of an hour after the claim: the old block is long stale.
    await ledger_schema.execute("DELETE FROM oncebox.entries WHERE fence = $1", high)
    clock.now = older.fences._good_until + 1
    assert (await older.claims.claim(offers("k"))).fence > high


async def test_two_processes_never_share_a_fence(open_ledger: OpenLedger) -> None:
    one, other = await open_ledger(), await open_ledger()
    for ledger in (one, other):
        ledger.fences._end = ledger.fences._next = 0
    seen = []
    for n in range(5):
        claimed = await asyncio.gather(*(each.claims.claim(offers(f"{n} {each.session.id}")) for each in (one, other)))
        seen += [each.fence for each in claimed]
        one.fences.discard()
    assert len(seen) == len(set(seen))


async def test_calls_that_draw_blocks_at_once_go_on_in_rising_order(ledger: PostgresLedger) -> None:
    claimed = await asyncio.gather(*(ledger.claims.claim(offers(f"k{n}")) for n in range(4)))
    later = await ledger.claims.claim(offers("later"))
    assert later.fence > max(each.fence for each in claimed)


def test_a_block_that_was_overtaken_is_thrown_away() -> None:
    fences = Fences(Clock())
    fences.refill(3 * BLOCK, 1000.0)
    assert fences.take() == 3 * BLOCK
    fences.refill(2 * BLOCK, 1000.0)
    assert fences.take() == 3 * BLOCK + 1


def test_a_block_grows_stale_from_the_moment_it_was_asked_for() -> None:
    clock = Clock()
    fences = Fences(clock)
    asked_at = clock.now
    clock.now += 10
    fences.refill(BLOCK, asked_at)
    clock.now = asked_at + LIFETIME - 0.001
    assert not fences.empty
    clock.now = asked_at + LIFETIME
    assert fences.empty


def test_a_batch_is_finished_when_each_of_its_claims_was_told_once() -> None:
    fences = Fences(Clock())
    fences.opened(1, 3)
    fences.opened(2, 1)
    fences.opened(3, 0)
    fences.closed([1, 1, 2, 99])
    assert sorted(fences.finished()) == [2, 3]
    fences.closed([1])
    assert fences.finished() == [1]
    assert fences.finished() == []


@pytest.mark.parametrize(("calling", "strays"), [([], [10, 20]), ([15], [10])])
def test_a_stray_is_unknown_to_memory_and_older_than_every_call_under_way(
    calling: list[int], strays: list[int]
) -> None:
    fences = Fences(Clock())
    fences.refill(BLOCK, 1000.0)
    fences.opened(5, 1)
    fences.opened(6, 0)
    fences.calling.update(calling)
    assert fences.strays([5, 6, 10, 20, 5 * BLOCK]) == strays


def test_a_lost_claim_is_no_longer_one_that_runs() -> None:
    fences = Fences(Clock())
    fences.refill(BLOCK, 1000.0)
    fences.opened(10, 2)
    assert fences.held() == {10}
    fences.lose(10)
    assert fences.held() == set()
    assert fences.strays([10]) == [10]
