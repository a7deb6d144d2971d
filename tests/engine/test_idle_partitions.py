"""Partitions without news must not hold up those that have a backlog."""

import asyncio
import itertools

import pytest
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.stack.client import Sent
from worker import Registry

LONG = 3.0
_PADDING = "." * 1000


class Message(BaseModel):
    """What the test sends."""

    id: str


@pytest.mark.parametrize("wait", [None, f"{LONG:g}s"], ids=["as shipped", "too long"])
async def test_a_backlog_does_not_wait_for_news_of_idle_partitions(site: Site, wait: str | None) -> None:
    name, began = site.topic(4), list[float]()
    registry = Registry()

    # At this pace what the client has buffered lasts longer than it waits before it asks for the idle partitions.
    @registry.handler(name, scope="payments", key="id", order="none")
    async def work(message: Message) -> None:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)  # what it waits for outside

    site.produce(name, [Sent(message(f"{n}", padding=_PADDING), partition=0) for n in range(4_000)])
    settings = {"ONCEBOX_CONCURRENCY": "32"} | ({} if wait is None else {"ONCEBOX_FETCH_WAIT": wait})
    await site.run(registry, **settings)
    assert len(began) == 4_000
    longest = max(later - earlier for earlier, later in itertools.pairwise(began))
    # Half the time in which, with the longer wait, nothing was to be had.
    assert (longest < LONG / 2) == (wait is None), f"nothing began for {longest:.2f} s"
