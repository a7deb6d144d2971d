"""While the records of one partition are taken up, another of the same fetch may be held: none of its are taken."""

import asyncio
from collections.abc import Sequence
from typing import Any

from worker import Registry
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.testing import Box


async def test_a_lane_that_is_held_while_another_is_taken_up_gives_none_of_its_records() -> None:
    shop, ran = Registry(), list[str]()

    @shop.handler(["a", "b"], scope="jobs", key="id", kind="repeatable")
    async def note(message: dict[str, Any]) -> None:
        ran.append(message["id"])

    async with Box(shop) as box:
        for topic in "ab":
            await box.deliver(topic, {"id": f"opens {topic}"})
        ran.clear()
        lanes, pipeline = box._process._consumer.lanes, box._process.pipeline
        take, taken = pipeline.take, list[str]()

        def taking(lane: Lane, records: Sequence[Record], position: int, **how: bool) -> None:
            taken.append(lane.topic)
            for other in lanes:
                if other is not lane:
                    other.held = "an operator must decide"
            take(lane, records, position, **how)

        pipeline.take = taking  # type: ignore[method-assign]
        both = [asyncio.ensure_future(box.deliver(topic, {"id": topic})) for topic in "ab"]
        await box.advance("1s")
        assert len(taken) == 1
        assert ran == taken
        for one in both:
            one.cancel()
