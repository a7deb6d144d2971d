"""What a test can look at besides outcomes: logs, notices, letters too large, and signs that something is stuck."""

import asyncio
import itertools
from typing import Any

import pytest

from tests.testing.shop import answer, charge, gateway
from worker import Context, Registry
from worker.testing import Box
from worker.testing.outbox import text


async def test_what_handlers_log_is_kept_with_the_message_it_is_about() -> None:
    shop = Registry()

    @shop.handler("t", scope="jobs", key="id", kind="repeatable")
    async def talk(message: dict[str, Any], context: Context) -> None:
        context.log.info("seen", id=message["id"])
        context.log.bind(step=2).warning("odd")

    async with Box(shop) as box:
        await box.deliver(talk, {"id": 1})
        first, second = box.logged
        assert (first.level, first.event, first.fields["id"], first.fields["operation"]) == (
            "info",
            "seen",
            1,
            "jobs/talk",
        )
        assert (second.level, second.event, second.fields["step"]) == ("warning", "odd", 2)


async def test_what_the_engine_says_is_kept(box: Box) -> None:
    gateway.act = lambda: 1 / 0
    await box.deliver(charge, {"delivery_id": "d"})
    [doubt] = [fields for event, fields in box.notices if event == "entry_in_doubt"]
    assert doubt["error"] == "ZeroDivisionError"


async def test_a_dead_letter_that_is_too_large_is_cut_and_its_record_parked(box: Box) -> None:
    box.outbox.largest = 10
    refused = await box.deliver(charge, {"amount_cents": 5})
    assert refused.outcome == "dead_lettered"
    assert box.parked == [refused.record]
    [letter] = box.dead_letters
    assert (letter.value, text(letter, "oncebox.reason")) == (b"", b"too_large")


async def test_a_result_that_cannot_be_published_is_owed(box: Box) -> None:
    gateway.act = lambda: "answer"
    box.outbox.unwritable.add("answered")
    delivered = await box.deliver(answer, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.published) == ("executed", None)
    assert box.parked == [delivered.record]


async def test_a_handler_that_ignores_its_cancellation_is_told_of() -> None:
    shop = Registry()

    @shop.handler("t", scope="jobs", key="id", kind="repeatable", timeout="1s")
    async def stubborn(message: dict[str, Any]) -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                continue

    async with Box(shop) as box:
        with pytest.raises(AssertionError, match="offset 0 has no outcome after 10m20s"):
            await box.deliver(stubborn, {"id": 1})


async def test_a_loop_that_never_waits_is_told_of(box: Box) -> None:
    async def spin() -> None:
        for _ in itertools.repeat(None):
            await asyncio.sleep(0)

    gateway.act = spin
    with pytest.raises(AssertionError, match="goes in circles"):
        await box.deliver(charge, {"delivery_id": "d"})


async def test_an_error_of_the_engine_reaches_the_test(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the ledger is broken")

    monkeypatch.setattr("worker.testing.memory.claims.MemoryClaims.claim", broken)
    with pytest.raises(RuntimeError, match="the ledger is broken"):
        await box.deliver(charge, {"delivery_id": "d"})
