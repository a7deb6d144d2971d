"""A process that was paused for too long: the others have settled its claims when it goes on."""

import asyncio
from typing import Any

from tests.testing.shop import charge, gateway, index, order
from worker import Context, Effect, NotExecuted, Registry
from worker.testing import Box


async def running(box: Box, handler: Any, release: asyncio.Event) -> "asyncio.Task[Any]":
    """Deliver a record whose handler waits for the release, before its effect if it has one."""
    gateway.behave = release.wait
    task = asyncio.ensure_future(box.deliver(handler, {"delivery_id": "d"}))
    await gateway.busy.wait()
    return task


async def test_a_late_result_of_the_claim_in_doubt_completes_it(box: Box) -> None:
    release = asyncio.Event()
    gateway.act = release.wait
    task = asyncio.ensure_future(box.deliver(charge, {"delivery_id": "d"}))
    await gateway.busy.wait()
    await box.end_session()
    entry = box.entry(charge, key="d")
    assert entry is not None
    assert (entry.state, entry.crashes) == ("unknown", 1)
    release.set()
    assert (await task).outcome == "executed"
    assert (await box.deliver(charge, {"delivery_id": "d"})).outcome == "replayed"
    assert len(gateway.charged) == 1
    assert box.tables.doubts == {}


async def test_an_effect_of_a_settled_claim_does_not_begin(box: Box) -> None:
    release = asyncio.Event()
    task = await running(box, charge, release)
    await box.end_session()
    await box.advance("10s")
    gateway.behave = lambda: None
    release.set()
    delivered = await task
    assert isinstance(delivered.errors[0], NotExecuted)
    assert (delivered.outcome, delivered.runs) == ("executed", 2)
    assert len(gateway.charged) == 1


async def test_a_transaction_of_a_settled_claim_is_rolled_back_and_runs_again(box: Box) -> None:
    release = asyncio.Event()
    task = await running(box, order, release)
    await box.end_session()
    release.set()
    delivered = await task
    assert (delivered.outcome, delivered.runs) == ("executed", 2)
    assert len(box.database.committed) == 1


async def test_a_repeatable_handlers_late_result_counts_while_nobody_ran_it_again(box: Box) -> None:
    release = asyncio.Event()
    task = await running(box, index, release)
    await box.end_session()
    release.set()
    delivered = await task
    assert (delivered.outcome, delivered.runs) == ("executed", 1)
    assert box.tables.history == []


async def test_a_result_refused_by_fence_is_kept_and_alerted(box: Box) -> None:
    release = asyncio.Event()
    task = await running(box, index, release)
    await box.end_session()
    [entry] = box.tables.entries.values()
    entry.fence += 1000
    release.set()
    delivered = await task
    assert delivered.runs == 2
    assert [event.event for event in box.tables.history] == ["result_refused"]
    assert any(event == "result_refused" and "alert" in fields for event, fields in box.notices)


async def test_records_that_waited_for_a_busy_handler_move_on_when_their_claims_were_settled() -> None:
    shop = Registry()
    started = asyncio.Event()

    @shop.handler("t", scope="payments", key="id", concurrency=1)
    async def pay(message: dict[str, Any], context: Context, effect: Effect) -> None:
        started.set()
        await asyncio.sleep(10)

    async with Box(shop) as box:
        tasks = [asyncio.ensure_future(box.deliver(pay, {"id": n})) for n in range(3)]
        await started.wait()
        await box.end_session()
        delivered = [await task for task in tasks]
        assert [one.outcome for one in delivered] == ["executed"] * 3
