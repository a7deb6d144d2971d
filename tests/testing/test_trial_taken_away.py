"""An open circuit lets one record try; if that one is taken away before it runs, the next may try at once."""

import asyncio
from typing import Any

from worker import NotExecuted, Registry, Retries
from worker.testing import Box


async def test_a_trial_whose_partition_is_taken_away_before_it_runs_lets_another_try() -> None:
    shop, broken, ran = Registry(), True, list[str]()

    @shop.handler(["a", "b"], scope="payments", key="id", retries=Retries(1), timeout="10m")
    async def charge(message: dict[str, Any]) -> None:
        if broken:
            raise NotExecuted("gateway is down")
        ran.append(message["id"])

    async with Box(shop) as box:
        for number in range(10):
            await box.deliver("a", {"id": f"failing {number}"})
        broken = False
        taken_away = asyncio.ensure_future(box.deliver("a", {"id": "tries"}))
        held = asyncio.ensure_future(box.deliver("b", {"id": "held"}))
        process = box._process
        [lane] = [lane for lane in process._consumer.lanes if lane.topic == "a"]
        claim = box._process.ledger.claims.claim

        async def claimed(offers: Any, **how: Any) -> Any:
            answer = await claim(offers, **how)
            process.pipeline.revoke([lane])
            return answer

        box._process.ledger.claims.claim = claimed  # type: ignore[method-assign]
        await box.advance("10s")
        assert ran == ["held"], "it must not wait until the one that never ran would have timed out"
        assert (await held).outcome == "executed"
        taken_away.cancel()
