"""A process dies at every point, over handlers of every kind: what the ledger says, and what happens afterwards."""

import asyncio
from dataclasses import dataclass

import pytest

from tests.testing.shop import charge, gateway, index, notify, order, registry
from worker.errors import UsageError
from worker.rules.handlers import Handler
from worker.testing import Box, CrashPoint

PAYLOAD = {"delivery_id": "d1", "shop": "s"}
POINTS: tuple[CrashPoint, ...] = (
    "after_claim",
    "before_effect",
    "inside_effect",
    "after_effect",
    "before_completion",
    "before_commit",
)


@dataclass(frozen=True)
class Story:
    handler: Handler
    point: CrashPoint
    calls: int  # of the outside system before the death, or statements committed
    state: str  # settled
    outcome: str  # of the redelivery
    calls_after: int


def stories() -> list[Story]:
    told = []
    for point in POINTS:
        done = point in ("after_effect", "before_completion", "before_commit")
        if point == "before_commit":
            told += [Story(handler, point, 1, "completed", "replayed", 1) for handler in (charge, order, index)]
            continue
        told += [
            Story(charge, point, int(done), "unknown", "parked", int(done)),
            Story(order, point, 0, "failed_retryable", "executed", 1),
            Story(index, point, int(done), "failed_retryable", "executed", 1 + int(done)),
        ]
    return told


def calls(box: Box, story: Story) -> int:
    return len(box.database.committed) if story.handler is order else len(gateway.charged)


@pytest.mark.parametrize("story", stories(), ids=lambda s: f"{s.handler.operation}-{s.point}")
async def test_a_death_settles_by_kind_and_the_redelivery_acts_on_it(box: Box, story: Story) -> None:
    crashed = await box.deliver(story.handler, PAYLOAD, crash=story.point)
    assert (crashed.outcome, crashed.crash) == (None, story.point)
    entry = box.entry(story.handler, key="d1")
    assert entry is not None
    assert (entry.state, entry.crashes) == (story.state, int(story.state != "completed"))
    assert entry.attempts == 0
    assert calls(box, story) == story.calls

    [again] = await box.restart()
    assert again.outcome == story.outcome
    assert calls(box, story) == story.calls_after
    assert len(box.parked) == int(story.outcome == "parked")
    assert await box.restart() == []


@pytest.mark.parametrize("point", POINTS)
async def test_the_claim_of_a_dead_process_lives_until_its_lease_has_lapsed(box: Box, point: CrashPoint) -> None:
    before = box.clock.seconds
    await box.deliver(charge, PAYLOAD, crash=point)
    assert box.clock.seconds - before > box.settings.lease.total_seconds()


async def test_effects_count_what_was_begun(box: Box) -> None:
    for key, point, begun in (("a", "before_effect", 0), ("b", "inside_effect", 1), ("c", "after_effect", 1)):
        await box.deliver(charge, {"delivery_id": key}, crash=point)  # type: ignore[arg-type]
        await box.restart()
        assert box.effects.count(charge, key=key) == begun
    assert len(box.effects) == box.effects.count() == 2
    assert [effect.key for effect in box.effects] == ["b", "c"]


async def test_an_external_handler_without_a_block_is_in_doubt_from_its_call_on(box: Box) -> None:
    await box.deliver(notify, PAYLOAD, crash="inside_effect")
    entry = box.entry(notify, key="d1", tenant="s")
    assert entry is not None
    assert entry.state == "unknown"
    assert gateway.charged == []
    assert box.effects.count(notify) == 1


async def test_a_transaction_that_was_open_at_the_death_leaves_nothing(box: Box) -> None:
    await box.deliver(order, PAYLOAD, crash="inside_effect")
    assert box.database.committed == []
    [again] = await box.restart()
    assert again.outcome == "executed"
    assert [statement.arguments for statement in box.database.committed] == [("d1",)]
    assert box.effects.count(order, key="d1") == 1


async def test_a_repeatable_handler_that_kills_its_worker_three_times_is_dead_lettered(box: Box) -> None:
    await box.deliver(index, PAYLOAD, crash="inside_effect")
    for _ in range(2):
        [crashed] = await box.restart(crash="inside_effect")
        assert crashed.outcome is None
    [last] = await box.restart()
    assert (last.outcome, last.reason) == ("dead_lettered", "crash_loop")
    again = await box.deliver(index, PAYLOAD)
    assert (again.outcome, again.reason, again.runs) == ("dead_lettered", "crash_loop", 0)


async def test_a_dead_process_takes_no_records_until_the_next_one_starts(box: Box) -> None:
    await box.deliver(charge, PAYLOAD, crash="after_claim")
    with pytest.raises(UsageError, match=r"await box\.restart"):
        await box.deliver(charge, {"delivery_id": "d2"})
    await box.restart()
    assert (await box.deliver(charge, {"delivery_id": "d2"})).outcome == "executed"


async def test_a_crash_point_that_is_not_reached_fails_the_test(box: Box) -> None:
    await box.deliver(charge, PAYLOAD)
    with pytest.raises(AssertionError, match="'inside_effect' was not reached: the record's outcome is replayed"):
        await box.deliver(charge, PAYLOAD, crash="inside_effect")
    with pytest.raises(UsageError, match="nothing to die over"):
        await box.restart(crash="after_claim")


async def test_a_death_stops_everything_the_process_had_in_flight() -> None:
    gateway.act = lambda: asyncio.sleep(5)
    async with Box(registry) as box:
        bystander = asyncio.ensure_future(box.deliver(charge, {"delivery_id": "by"}))
        await gateway.busy.wait()
        crashed = await box.deliver(charge, PAYLOAD, crash="before_effect")
        assert (await bystander).outcome is None
        assert (await bystander).crash is None
        assert crashed.crash == "before_effect"
        assert gateway.charged == []
        assert [delivered.outcome for delivered in await box.restart()] == ["parked", "parked"]
        assert gateway.charged == []


async def test_what_was_finished_behind_a_gap_is_replayed_after_a_death() -> None:
    release = asyncio.Event()
    gateway.behave = release.wait
    async with Box(registry) as box:
        stuck = asyncio.ensure_future(box.deliver(order, {"delivery_id": "stuck"}))
        await gateway.busy.wait()
        gateway.behave = lambda: None
        done = await box.deliver(order, {"delivery_id": "done"})
        assert done.outcome == "executed"
        crashed = await box.deliver(order, {"delivery_id": "dies"}, crash="after_claim")
        assert (await stuck).outcome is crashed.outcome is None
        redelivered = await box.restart()
        assert [delivered.outcome for delivered in redelivered] == ["executed", "replayed", "executed"]
        assert len(box.database.committed) == 3
