"""A claim that is full goes out, also while more of its fetch is still taken up."""

import asyncio
from typing import Any

import pytest

from worker import Registry
from worker.engine.claimer import Claimer
from worker.testing import Box


class Looking:
    """How many handlers had started whenever a fetch was taken up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = 0
        self.before_the_rest: list[int] = []
        all_offered = Claimer.all_offered

        def taken_up(claimer: Claimer) -> None:
            self.before_the_rest.append(self.started)
            all_offered(claimer)

        monkeypatch.setattr(Claimer, "all_offered", taken_up)


@pytest.mark.parametrize("batch", [1, 20, 500])
async def test_full_claims_do_not_wait_for_the_rest_of_a_fetch(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, looking = Registry(), Looking(monkeypatch)

    @registry.handler("t", scope="jobs", key="id", kind="repeatable")
    async def work(message: dict[str, Any]) -> None:
        looking.started += 1

    async with Box(registry, in_flight=512, claim_batch=batch) as box:
        await asyncio.gather(*(box.deliver(work, {"id": number}) for number in range(480)))
    assert any(looking.before_the_rest)


async def test_one_that_runs_long_does_not_keep_a_small_window_from_being_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, looking, over = Registry(), Looking(monkeypatch), asyncio.Event()

    @registry.handler("t", scope="jobs", key="id", kind="repeatable")
    async def work(message: dict[str, Any]) -> None:
        if message["id"] == "long":
            await over.wait()
        looking.started += 1

    async with Box(registry, in_flight=30) as box:
        long = asyncio.ensure_future(box.deliver(work, {"id": "long"}))
        await box.advance("1s")
        await asyncio.gather(*(box.deliver(work, {"id": number}) for number in range(58)))
        assert any(looking.before_the_rest)
        over.set()
        await long
