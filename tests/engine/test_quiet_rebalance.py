"""A rebalance while the worker waits for records: what the waiting call drains afterwards is not lost."""

import asyncio
import contextlib
from collections import Counter
from functools import partial

import pytest
from pydantic import BaseModel

from tests.conftest import MakeTopic
from tests.engine.site import Site
from tests.waiting import eventually
from worker import Registry


class Message(BaseModel):
    """What the tests send."""

    id: str


def moved(ran: Counter[str], least: int) -> bool:
    return len(ran) >= least


@pytest.mark.timeout(90)
async def test_a_trickle_over_joining_and_leaving_members_loses_nothing(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    ran: Counter[str] = Counter()
    sent: list[str] = []

    def registry() -> Registry:
        made = Registry()

        @made.handler(name, scope="jobs", key="id", kind="repeatable")
        async def work(message: Message) -> None:
            ran[message.id] += 1

        return made

    async def trickle() -> None:
        while True:
            await asyncio.to_thread(site.produce, name, [b'{"id":"k%d"}' % (len(sent) + n) for n in range(3)])
            sent.extend(f"k{len(sent) + n}" for n in range(3))

    async with site.worker(registry()):
        producing = asyncio.create_task(trickle())
        for _ in range(4):
            least = len(ran) + 15
            async with site.worker(registry()):
                await eventually(partial(moved, ran, least), 30, "nothing moves")
        producing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await producing
        await site.drained(name)
        await site.quiet()
    states = await site.states()
    assert set(states) >= set(sent), "every acknowledged record has its entry"
    assert set(states.values()) == {"completed"}
