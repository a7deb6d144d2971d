"""Claiming: each key is won once, whoever asks, however they interleave."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from tests.ledger.conftest import EITHER_WAY, Notices, OpenLedger, Schema
from tests.ledger.locks import holding, somebody_waits
from tests.ledger.offers import Offer, done, doubted, failed, id_of, offers, plan, record, released
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind, State
from worker.rules.entries import Answer, answer
from worker.rules.writes import Claimed, Parking

pytestmark = EITHER_WAY
KEYS = [f"key {n}" for n in range(500)]


def winners(claimed: Claimed, keys: list[str]) -> dict[str, int]:
    """The keys that were won, with their fences."""
    won = {key: claimed.winner(id_of(key)) for key in keys}
    return {key: one.fence for key, one in won.items() if one is not None}


async def test_two_workers_claim_the_same_500_keys_and_each_key_is_won_once(open_ledger: OpenLedger) -> None:
    one, other = await open_ledger(), await open_ledger()
    for turn in range(5):
        keys = [f"{turn} {key}" for key in KEYS]
        answers = await asyncio.gather(one.claims.claim(offers(*keys)), other.claims.claim(offers(*keys[::-1])))
        won = [winners(each, keys) for each in answers]
        assert sorted([*won[0], *won[1]]) == sorted(keys)
        for mine, theirs, claimed in ((won[0], won[1], answers[0]), (won[1], won[0], answers[1])):
            lost = {id_of(key): fence for key, fence in theirs.items()}
            seen = {id_: row.fence for id_, row in claimed.rows.items()}
            assert seen == lost, f"a loser must see the winner's row, {len(mine)} won here"
            assert all(row.state is State.IN_PROGRESS for row in claimed.rows.values())


async def test_overlapping_batches_never_deadlock(open_ledger: OpenLedger, notices: Notices) -> None:
    workers = [await open_ledger() for _ in range(3)]
    chance = random.Random(7)
    taken: list[str] = []

    async def work(ledger: PostgresLedger, round_: int) -> None:
        keys = [f"{round_} {key}" for key in chance.sample(KEYS, 200)]
        claimed = await ledger.claims.claim(offers(*keys))
        mine = winners(claimed, keys)
        taken.extend(mine)
        finished = [done(key, fence) for key, fence in mine.items()]
        chance.shuffle(finished)
        assert await ledger.finals.complete(finished) == set()

    for round_ in range(10):
        await asyncio.gather(*(work(ledger, round_) for ledger in workers for _ in range(2)))
    assert len(taken) == len(set(taken))
    assert notices.of("claim_broke") + notices.of("final_write_broke") == []


@pytest.mark.parametrize("statement", ["complete", "complete_late", "fail", "release", "doubt", "claim_again", "hold"])
async def test_rows_are_locked_in_the_order_of_their_ids_however_they_are_given(
    ledger: PostgresLedger, ledger_schema: Schema, statement: str
) -> None:
    first, last = sorted(("a", "b"), key=id_of)
    given = (last, first)
    fence = (await ledger.claims.claim(offers(*given))).fence
    if statement == "claim_again":
        await ledger.finals.release([released(key, fence) for key in given])
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "complete": lambda: ledger.finals.complete([done(key, fence) for key in given]),
        "complete_late": lambda: ledger.finals.complete_late([done(key, fence) for key in given]),
        "fail": lambda: ledger.finals.fail([failed(key, fence) for key in given]),
        "release": lambda: ledger.finals.release([released(key, fence) for key in given]),
        "doubt": lambda: ledger.finals.doubt([doubted(key, fence) for key in given]),
        "claim_again": lambda: ledger.claims.claim_again(offers(*given)),
        "hold": lambda: ledger.parking.park([Parking(record(), "why", id_of(key), 1, 1.0) for key in given]),
    }
    lock = ledger_schema.sql(
        "SELECT 1 FROM oncebox.entries WHERE id = encode($1::bytea, 'hex')::uuid FOR UPDATE NOWAIT"
    )
    async with holding(ledger_schema.url, lock, id_of(last)) as holder:
        call = asyncio.create_task(calls[statement]())
        await somebody_waits(ledger_schema.admin, holder)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await ledger_schema.admin.fetch(lock, id_of(first))
        await holder.execute("ROLLBACK")
        await call


async def test_a_claim_that_waits_for_another_loses_and_sees_its_row(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    mine, theirs = await open_ledger(), await open_ledger()
    await theirs.claims.claim(offers("warm"))
    text = theirs.queries["claim"].replace("$3::uuid[]", "ARRAY[encode($3::bytea, 'hex')::uuid]")
    arguments = [[1], [0], [b"f"], None, [b"k"], [1], [1], [60.0], [1], [0], [1]]
    async with holding(ledger_schema.url, text, theirs.session.id, 77, id_of("k"), *arguments) as holder:
        waiting = asyncio.create_task(mine.claims.claim(offers("k", "free")))
        await somebody_waits(ledger_schema.admin, holder)
        await holder.execute("COMMIT")
        claimed = await waiting
    assert claimed.winner(id_of("free")) is not None
    assert claimed.winner(id_of("k")) is None
    assert claimed.rows[id_of("k")].fence == 77


async def test_looking_first_gives_the_same_answer(ledger: PostgresLedger) -> None:
    first = await ledger.claims.claim(offers("a", "b"))
    await ledger.finals.complete([done("a", first.fence)])
    claimed = await ledger.claims.claim(offers("a", "b", "c"), look_first=True)
    assert winners(claimed, ["a", "b", "c"]) == {"c": claimed.fence}
    assert claimed.rows[id_of("a")].state is State.COMPLETED
    assert claimed.rows[id_of("b")].state is State.IN_PROGRESS
    again = await ledger.claims.claim(offers("a", "b"), look_first=True)
    assert winners(again, ["a", "b"]) == {}


async def test_keys_with_nul_emoji_and_512_bytes_come_back_unchanged(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    keys = ["\0", "a\0b", "\U0001f600", "é" * 256, "'; DROP TABLE entries; --", "\\x00"]
    claimed = await ledger.claims.claim(offers(*keys))
    assert winners(claimed, keys).keys() == set(keys)
    for key in keys:
        assert (await ledger_schema.entry(key))["key"] == key.encode()


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": b"other"},
        {"fingerprint": None},
        {"plan": plan(cap=1)},
    ],
    ids=["other payload", "no fingerprint", "attempts at the cap"],
)
async def test_claiming_again_is_refused(ledger: PostgresLedger, change: dict[str, object]) -> None:
    claimed = await ledger.claims.claim(offers("k"))
    await ledger.finals.fail([failed("k", claimed.fence)])
    assert await ledger.claims.claim_again([Offer("k", **change)]) == {}  # type: ignore[arg-type]
    assert id_of("k") in await ledger.claims.claim_again([Offer("k")])


async def test_claiming_again_waits_for_the_due_time(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    claimed = await ledger.claims.claim(offers("k"))
    await ledger.finals.fail([failed("k", claimed.fence, delay=100)])
    assert await ledger.claims.claim_again(offers("k")) == {}
    row = (await ledger.claims.look_up([id_of("k")]))[id_of("k")]
    assert answer(row, b"f", plan(), 3) is Answer.LATER
    assert row.due_in is not None
    assert 90 < row.due_in <= 100
    await ledger_schema.execute("UPDATE oncebox.entries SET due_at = clock_timestamp()")
    won = await ledger.claims.claim_again(offers("k"))
    assert won[id_of("k")].attempts == 1
    assert won[id_of("k")].failed_at is not None


async def test_claiming_again_is_refused_at_the_cap_of_crashes(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    claimed = await ledger.claims.claim(offers("k", kind=Kind.REPEATABLE))
    await ledger.finals.release([released("k", claimed.fence)])
    await ledger_schema.execute("UPDATE oncebox.entries SET crashes = 3")
    assert await ledger.claims.claim_again(offers("k")) == {}


async def test_a_cap_above_what_the_column_holds_is_no_error(ledger: PostgresLedger) -> None:
    claimed = await ledger.claims.claim(offers("k", cap=100_000))
    await ledger.finals.fail([failed("k", claimed.fence)])
    assert id_of("k") in await ledger.claims.claim_again(offers("k", cap=100_000))


async def test_a_claim_takes_nothing_that_is_completed_unknown_or_running(ledger: PostgresLedger) -> None:
    claimed = await ledger.claims.claim(offers("a", "b"))
    await ledger.finals.complete([done("a", claimed.fence)])
    assert await ledger.claims.claim_again(offers("a", "b")) == {}
