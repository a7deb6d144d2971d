"""A key that comes with another payload is misuse, whatever state its entry is in."""

import asyncio

from tests.testing.shop import charge, gateway, order, slow
from worker.rules.handlers import Handler
from worker.testing import Box
from worker.testing.outbox import text


async def misuse(box: Box, handler: Handler, state: str) -> None:
    entry = box.entry(handler, key="d1")
    assert entry is not None
    assert entry.state == state
    other = await box.deliver(handler, {"delivery_id": "d1", "amount_cents": 99})
    assert (other.outcome, other.reason, other.runs, other.result) == ("misuse", "misuse", 0, None)
    assert other.dead_letter is not None
    first, second = (text(other.dead_letter, f"oncebox.{name}") for name in ("first-fingerprint", "fingerprint"))
    assert first
    assert second
    assert first != second
    assert text(other.dead_letter, "oncebox.state") == state.encode()
    after = box.entry(handler, key="d1")
    assert after is not None
    assert (after.state, after.fence) == (entry.state, entry.fence)


async def test_misuse_of_a_completed_entry(box: Box) -> None:
    await box.deliver(charge, {"delivery_id": "d1"})
    await misuse(box, charge, "completed")


async def test_misuse_of_an_entry_whose_handler_runs(box: Box) -> None:
    release = asyncio.Event()
    gateway.behave = release.wait
    running = asyncio.ensure_future(box.deliver(order, {"delivery_id": "d1"}))
    await gateway.busy.wait()
    waiting = asyncio.ensure_future(box.deliver(order, {"delivery_id": "d1", "amount_cents": 99}))
    release.set()
    assert (await running).outcome == "executed"
    assert (await waiting).outcome == "misuse"


async def test_misuse_of_an_entry_that_another_process_has_in_progress(box: Box) -> None:
    await box.deliver(order, {"delivery_id": "d1"})
    [entry] = box.tables.entries.values()
    entry.state, entry.result = type(entry.state).IN_PROGRESS, None
    await misuse(box, order, "in_progress")


async def test_misuse_of_an_entry_that_waits_for_its_retry(box: Box) -> None:
    gateway.behave = lambda: 1 / 0
    assert (await box.deliver(slow, {"delivery_id": "d1"})).outcome == "parked"
    await misuse(box, slow, "failed_retryable")


async def test_misuse_of_an_entry_in_doubt(box: Box) -> None:
    gateway.act = lambda: 1 / 0
    assert (await box.deliver(charge, {"delivery_id": "d1"})).outcome == "parked"
    await misuse(box, charge, "unknown")


async def test_of_two_payloads_that_come_at_once_one_is_misuse(box: Box) -> None:
    first, second = await asyncio.gather(
        box.deliver(charge, {"delivery_id": "d1", "amount_cents": 1}),
        box.deliver(charge, {"delivery_id": "d1", "amount_cents": 2}),
    )
    assert (first.outcome, second.outcome) == ("executed", "misuse")
    assert len(gateway.charged) == 1
