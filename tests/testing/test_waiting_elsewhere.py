"""Records whose key another process has in hand: they wait, they are parked, and they hear of what became of it."""

import asyncio
from typing import Any

from tests.testing.shop import order
from worker import Context, Registry, Scope
from worker.rules.claims import State
from worker.rules.results import Result
from worker.testing import Box
from worker.testing.memory.tables import Entry
from worker.testing.outbox import text


def take_away(box: Box) -> dict[bytes, Result]:
    """Let another process have every entry in progress; the results they had."""
    taken = {}
    for entry in box.tables.entries.values():
        assert entry.result is not None
        taken[entry.id] = entry.result
        entry.state, entry.result = State.IN_PROGRESS, None
    return taken


def give_back(entry: Entry, result: Result) -> None:
    entry.state, entry.result = State.COMPLETED, result


async def test_a_record_waits_for_another_process_and_is_replayed_when_that_one_has_finished(box: Box) -> None:
    first = await box.deliver(order, {"delivery_id": "d"})
    results = take_away(box)
    waiting = asyncio.ensure_future(box.redeliver(first))
    await box.advance("10s")
    assert not waiting.done()
    [entry] = box.tables.entries.values()
    give_back(entry, results[entry.id])
    before = box.clock.seconds
    assert (await waiting).outcome == "replayed"
    assert box.clock.seconds - before < 2


async def test_a_record_is_parked_after_the_hold_and_replayed_later(box: Box) -> None:
    first = await box.deliver(order, {"delivery_id": "d"})
    results = take_away(box)
    waiting = await box.redeliver(first)
    assert (waiting.outcome, waiting.reason) == ("parked", "hold")
    [entry] = box.tables.entries.values()
    give_back(entry, results[entry.id])
    await box.advance("1m")
    assert box.now(waiting).outcome == "replayed"
    assert box.parked == []


async def test_hundreds_that_wait_for_others_do_not_keep_one_from_its_answer() -> None:
    shop = Registry()

    @shop.handler("t", scope="jobs", key="id", kind="repeatable")
    async def note(message: dict[str, Any]) -> None: ...

    async with Box(shop) as box:
        firsts = await asyncio.gather(*(box.deliver(note, {"id": n}) for n in range(510)))
        results = take_away(box)
        waiting = [asyncio.ensure_future(box.redeliver(first)) for first in firsts]
        await box.advance("5s")
        last = list(box.tables.entries.values())[-1]
        assert last.key is not None
        give_back(last, results[last.id])
        before = box.clock.seconds
        assert (await waiting[int(last.key)]).outcome == "replayed"
        assert box.clock.seconds - before < 5


async def test_a_parked_record_that_turns_out_to_be_in_doubt_says_so_to_whoever_asked() -> None:
    shop = Registry()
    shop.add(Scope("asked", ttl="1d", reply_to=frozenset({"replies"})))

    @shop.handler("t", scope="asked", key="id", timeout="10m")
    async def pay(message: dict[str, Any], context: Context) -> None:
        await asyncio.sleep(120)
        raise ConnectionError

    async with Box(shop) as box:
        headers = {"reply_to": "replies"}
        first, second = await box.deliver_twice(pay, {"id": 1}, headers=headers)
        assert (first.outcome, second.outcome) == ("parked", "parked")
        await box.advance("10m")
        statuses = [text(reply, "oncebox.reply-status") for reply in box.outbox.replies]
        assert statuses == [b"202", b"202"]
        assert box.now(second).reason == "unknown"


async def test_claims_of_what_becomes_due_elsewhere_at_once_never_exceed_those_allowed() -> None:
    shop, at_once = Registry(), list[int]()

    @shop.handler("t", scope="jobs", key="id", kind="repeatable")
    async def note(message: dict[str, Any]) -> None:
        at_once.append(sum(entry.state is State.IN_PROGRESS for entry in box.tables.entries.values()))
        await asyncio.sleep(1)

    async with Box(shop, in_flight=4) as box:
        firsts = await asyncio.gather(*(box.deliver(note, {"id": n}) for n in range(40)))
        take_away(box)
        waiting = [asyncio.ensure_future(box.redeliver(first)) for first in firsts]
        await box.advance("5s")
        at_once.clear()
        for entry in box.tables.entries.values():
            entry.state, entry.due_at, entry.result = State.FAILED_RETRYABLE, box.clock(), None
        assert {delivered.outcome for delivered in await asyncio.gather(*waiting)} == {"executed"}
        assert len(at_once) == 40
        assert max(at_once) == 4
