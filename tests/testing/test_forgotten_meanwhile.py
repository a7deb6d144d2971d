"""An entry that goes between the look at it and the claim: a record that was finished long ago is not run for that."""

from typing import Any

import pytest

from worker import Registry
from worker.rules.claims import State
from worker.testing import Box


@pytest.mark.parametrize("pruned", [False, True])
async def test_a_record_whose_entry_is_pruned_before_it_is_claimed_again_is_beyond_its_ttl(pruned: bool) -> None:
    shop, ran = Registry(), list[int]()

    @shop.handler("t", scope="jobs", key="id", kind="repeatable")
    async def note(message: dict[str, Any]) -> None:
        ran.append(message["id"])

    async with Box(shop) as box:
        first = await box.deliver(note, {"id": 1})
        [entry] = box.tables.entries.values()
        entry.state, entry.due_at, entry.result = State.FAILED_RETRYABLE, box.clock(), None
        for lane in box._process._consumer.lanes:
            lane.remember({entry.operation: 1_000})
        claims = box._process.ledger.claims
        look_up = claims.look_up

        async def looked_up(ids: Any) -> Any:
            rows = await look_up(ids)
            if pruned:
                box.tables.entries.clear()
            return rows

        claims.look_up = looked_up  # type: ignore[method-assign]
        again = await box.redeliver(first)
        assert (again.outcome, again.reason) == (("dead_lettered", "beyond_ttl") if pruned else ("executed", None))
        assert ran == ([1] if pruned else [1, 1])
