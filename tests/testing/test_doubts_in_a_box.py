"""Entries in doubt, in virtual time: the reconciler is asked, believed when it may be, and in the end given up on."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from worker import Context, Effect, Reconcile, Registry, Scope, Verdict
from worker.testing import Box

QUIET = 2 + 15 + 5  # timeout, lease, horizon


class Provider:
    """Someone else's system, and what its search says."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.asked: list[Context] = []
        self.orders: list[bool] = []
        self.answer: Callable[[Context], Any] = lambda context: Verdict.unknown()


def shop(
    provider: Provider, *, reconciler: bool = True, scope: Scope | None = None, **how: Any
) -> tuple[Registry, Any]:
    registry = Registry()
    registry.add(scope or Scope("shop", ttl="7d"))
    reconcile = Reconcile(first="1s", most="30s", until="10m", **how)

    @registry.handler(
        "charges",
        scope="shop",
        key="id",
        timeout="2s",
        effect_horizon="5s",
        reconcile=reconcile,
        result_topic="receipts",
    )
    async def charge(message: dict[str, Any], context: Context, effect: Effect) -> str:
        provider.orders.append(context.out_of_order)
        async with effect:
            if message.get("breaks") and len(provider.orders) == 1:
                raise ConnectionError
            provider.charged.append(context.effect_key())
        return "charged"

    if reconciler:

        @charge.reconciler
        async def look_up(context: Context) -> Verdict:
            provider.asked.append(context)
            answer = provider.answer(context)
            verdict: Verdict = (await answer) if asyncio.iscoroutine(answer) else answer
            return verdict

    return registry, charge


async def test_executed_completes_the_entry_and_pays_what_its_parked_records_are_owed() -> None:
    provider = Provider()
    registry, charge = shop(provider)
    provider.answer = lambda context: Verdict.executed({"receipt": context.effect_key()})
    async with Box(registry) as box:
        await box.deliver(charge, {"id": "k"}, crash="after_effect")
        await box.restart()
        [parked] = box.parked
        await box.advance("3s")
        entry = box.entry(charge, key="k")
        assert entry is not None
        assert (entry.state, entry.result) == ("completed", {"receipt": provider.charged[0]})
        assert (len(provider.asked), len(provider.charged), box.parked) == (1, 1, [])
        [paid] = box.outbox.results
        assert (paid.topic, json.loads(paid.value or b"")) == ("receipts", entry.result)
        assert dict(paid.headers)["Idempotent-Replayed"] == b"true"
        assert provider.asked[0].record == parked


async def test_not_executed_runs_again_after_the_quiet_time_out_of_order() -> None:
    provider = Provider()
    registry, charge = shop(provider)
    provider.answer = lambda context: Verdict.not_executed()
    async with Box(registry) as box:
        await box.deliver(charge, {"id": "k"}, crash="inside_effect")
        await box.restart()
        await box.advance(QUIET - 2)
        entry = box.entry(charge, key="k")
        assert entry is not None
        assert entry.state == "unknown"
        assert len(provider.asked) > 2, "asked, and not believed yet"
        await box.advance("10s")
        entry = box.entry(charge, key="k")
        assert entry is not None
        assert entry.state == "completed"
        assert (len(provider.charged), provider.orders) == (1, [False, True])


async def test_probes_back_off_and_every_one_is_on_record() -> None:
    provider, times = Provider(), list[float]()
    registry, charge = shop(provider)
    async with Box(registry) as box:

        def fail(context: Context) -> Verdict:
            times.append(box.clock())
            raise SystemExit("a reconciler may raise anything")

        provider.answer = fail
        await box.deliver(charge, {"id": "k", "breaks": True})
        await box.advance("2m")
        waits = [round(b - a) for a, b in itertools.pairwise(times)]
        assert waits[:5] == pytest.approx([2, 4, 8, 16, 30], abs=2)
        assert {e.detail for e in box.tables.history} == {"unknown: SystemExit"}
        assert len(box.tables.history) == len(times)


async def test_after_the_deadline_the_record_is_a_dead_letter_once_and_the_entry_stays_unknown() -> None:
    provider = Provider()
    registry, charge = shop(provider)
    async with Box(registry) as box:
        first = await box.deliver(charge, {"id": "k", "breaks": True}, headers={"x": b"\xff"}, kafka_key="kk")
        assert (first.outcome, first.reason) == ("parked", "unknown")
        await box.advance("9m")
        assert box.dead_letters == []
        await box.advance("5m")
        [letter] = box.dead_letters
        assert (letter.key, letter.value) == (b"kk", first.record.value)
        about = dict(letter.headers)
        assert (about["x"], about["oncebox.reason"], about["oncebox.state"]) == (b"\xff", b"unknown", b"unknown")
        probes = json.loads(about["oncebox.probes"] or b"")
        assert {probe["said"] for probe in probes} == {"unknown"}
        assert b"asked" in (about["__dlq.errors.message"] or b"")
        entry = box.entry(charge, key="k")
        assert entry is not None
        assert entry.state == "unknown"
        later = await box.deliver(charge, {"id": "k", "breaks": True})
        assert later.outcome == "parked", "later records of the key wait"
        assert len(box.parked) == 2
        asked = len(provider.asked)
        await box.advance("10m")
        assert (len(provider.asked), len(box.dead_letters)) == (asked, 1)


async def test_after_so_many_probes_nobody_is_asked_any_more_but_not_before_the_quiet_time_is_over() -> None:
    provider = Provider()
    registry, charge = shop(provider, probes=2)
    async with Box(registry) as box:
        await box.deliver(charge, {"id": "k", "breaks": True})
        doubt = next(iter(box.tables.doubts.values()))
        while not box.dead_letters:
            await box.advance("1s")
        assert len(provider.asked) > 2, "before the quiet time a second answer would have been the last"
        assert box.clock() >= doubt.quiet_until
        asked = len(provider.asked)
        await box.advance("9m")
        assert (len(provider.asked), len(box.dead_letters)) == (asked, 1)


async def test_without_a_reconciler_a_doubt_is_reported_after_the_grace_time() -> None:
    provider = Provider()
    registry, charge = shop(provider, reconciler=False)
    async with Box(registry, grace="10m") as box:
        await box.deliver(charge, {"id": "k", "breaks": True})
        await box.advance("9m")
        assert box.dead_letters == []
        await box.advance("2m")
        assert [dict(letter.headers)["oncebox.reason"] for letter in box.dead_letters] == [b"unknown"]
        assert "doubt_reported" in {event for event, _ in box.notices}


async def test_a_letter_that_cannot_be_written_is_written_when_its_topic_is_back() -> None:
    provider = Provider()
    registry, charge = shop(provider, reconciler=False)
    async with Box(registry, grace="1m") as box:
        box.outbox.unwritable.add("dlq.charges")
        await box.deliver(charge, {"id": "k", "breaks": True})
        await box.advance("10m")
        assert box.dead_letters == []
        box.outbox.unwritable.clear()
        await box.advance("2m")
        assert len(box.dead_letters) == 1


async def test_whoever_asked_by_reply_to_is_told_in_the_end() -> None:
    provider = Provider()
    scope = Scope("shop", ttl="7d", reply_to=frozenset({"answers"}))
    registry, charge = shop(provider, reconciler=False, scope=scope)
    async with Box(registry, grace="1m") as box:
        await box.deliver(charge, {"id": "k", "breaks": True}, headers={"reply_to": "answers"})
        box.outbox.unwritable.add("answers")
        await box.advance("3m")
        assert len(box.dead_letters) == 1, "not written again for its reply"
        box.outbox.unwritable.clear()
        await box.advance("1m")
        statuses = [dict(reply.headers)["oncebox.reply-status"] for reply in box.outbox.replies]
        assert statuses == [b"202", b"500"]
        assert len(box.dead_letters) == 1


async def test_a_record_that_nobody_parked_is_read_back_and_parked_before_it_is_needed() -> None:
    provider = Provider()
    registry, charge = shop(provider)
    async with Box(registry) as box:
        first = await box.deliver(charge, {"id": "k", "breaks": True})
        box.tables.parked.clear()  # as if nothing but the log had it
        provider.answer = lambda context: Verdict.not_executed()
        await box.advance("2s")
        assert box.parked == [first.record]
        assert provider.asked[0].record == first.record
        await box.advance("1m")
        entry = box.entry(charge, key="k")
        assert entry is not None
        assert (entry.state, provider.orders) == ("completed", [False, True])


async def test_a_record_that_is_gone_is_alerted_and_its_reconciler_asked_without_it() -> None:
    provider = Provider()
    registry, charge = shop(provider)
    async with Box(registry) as box:
        first = await box.deliver(charge, {"id": "k", "breaks": True})
        box.tables.parked.clear()
        other = first.record.__class__("charges", 0, 0, value=b'{"id": "k", "another": "payload"}')
        box._topics.records["charges", 0][0] = other  # a topic that was created anew
        await box.advance("2s")
        context = provider.asked[0]
        assert (context.key, context.fence) == ("k", first.fence)
        assert context.effect_key() == provider.asked[0].effect_key("")
        with pytest.raises(LookupError, match="neither parked nor in its topic"):
            _ = context.headers
        await box.advance("1h")
        assert box.dead_letters == [], "another payload's bytes are never reported as this one's"
        alerts = [fields for event, fields in box.notices if event == "doubt_without_record"]
        assert len(alerts) == 1
        assert "cannot be found" in alerts[0]["alert"]
        entry = box.entry(charge, key="k")
        assert entry is not None
        assert entry.state == "unknown"


async def test_a_reconciler_that_hangs_or_answers_nonsense_stops_nothing() -> None:
    provider = Provider()
    registry, charge = shop(provider, per_second=100)
    never = asyncio.Event()

    async def hang() -> Verdict:
        while True:
            try:
                await never.wait()
            except asyncio.CancelledError:
                continue

    def answer(context: Context) -> Any:
        if context.key == "hangs":
            return hang()
        return Verdict.executed("found") if context.key == "k" else "nonsense"

    provider.answer = answer
    async with Box(registry) as box:
        for key in ("hangs", "silly", "k"):
            await box.deliver(charge, {"id": key, "breaks": True}, crash="inside_effect")
            await box.restart()
        await box.advance("1m")
        states = {key: box.entry(charge, key=key) for key in ("hangs", "silly", "k")}
        assert {key: entry.state for key, entry in states.items() if entry is not None} == {
            "hangs": "unknown",
            "silly": "unknown",
            "k": "completed",
        }
        details = {e.detail for e in box.tables.history}
        assert {"unknown: it timed out", "unknown: it returned str, not a Verdict"} <= details
        never.set()


async def test_reconcilers_are_asked_no_faster_than_their_rate() -> None:
    provider, times = Provider(), list[float]()
    registry, charge = shop(provider, per_second=1)
    async with Box(registry) as box:

        def answer(context: Context) -> Verdict:
            times.append(box.clock())
            return Verdict.executed("found")

        provider.answer = answer
        for n in range(20):
            await box.deliver(charge, {"id": f"k{n}", "breaks": True}, crash="inside_effect")
            await box.restart()
        await box.advance("1m")
        assert len(times) == 20
        assert all(b - a > 0.5 for a, b in itertools.pairwise(times))


async def test_private_keys_stay_private_and_their_effect_keys_the_same() -> None:
    provider = Provider()
    registry, charge = shop(provider, scope=Scope("shop", ttl="7d", private_keys=True))
    async with Box(registry) as box:
        await box.deliver(charge, {"id": "secret"}, crash="after_effect")
        box.tables.parked.clear()
        await box.restart()
        await box.advance("30s")
        assert {context.key for context in provider.asked} == {"(private)"}
        assert {context.effect_key() for context in provider.asked} == set(provider.charged)
