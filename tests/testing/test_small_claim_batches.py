"""A claim that is full goes out, also while more of its fetch is still taken up."""

import asyncio
from typing import Any

import pytest

from worker import Registry
from worker.engine.claimer import Claimer
from worker.testing import Box


@pytest.mark.parametrize("batch", [1, 20, 500])
async def test_full_claims_do_not_wait_for_the_rest_of_a_fetch(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    started = 0
    before_the_rest: list[int] = []

    @registry.handler("t", scope="jobs", key="id", kind="repeatable")
    async def work(message: dict[str, Any]) -> None:
        nonlocal started
        started += 1

    all_offered = Claimer.all_offered

    def taken_up(claimer: Claimer) -> None:
        before_the_rest.append(started)
        all_offered(claimer)

    monkeypatch.setattr(Claimer, "all_offered", taken_up)
    async with Box(registry, in_flight=512, claim_batch=batch) as box:
        await asyncio.gather(*(box.deliver(work, {"id": number}) for number in range(480)))
    assert any(before_the_rest)
