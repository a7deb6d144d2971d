"""Nothing starts on a lease that is not safe: no handler, no effect, no plain function that waited its turn."""

import asyncio
import signal
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.waiting import eventually
from worker import Context, Effect, Registry
from worker.stack import Stack

pytestmark = pytest.mark.stories
LEASE = 3.0


class Message(BaseModel):
    """What the tests send."""

    id: str


@pytest.mark.timeout(60)
async def test_an_effect_is_refused_while_the_lease_is_not_safe_and_counts_no_attempt(
    site_on_own_postgres: Site, own_postgres: Stack
) -> None:
    site, registry = site_on_own_postgres, Registry()
    name, entered, tried = site.topic(), list[int](), list[int]()
    go = asyncio.Event()

    @registry.handler(name, scope="payments", key="id")
    async def work(message: Message, context: Context, effect: Effect) -> None:
        tried.append(context.attempt)
        await go.wait()
        async with effect:
            entered.append(context.attempt)

    site.produce(name, [message("k")])
    server = own_postgres.server("postgres")
    async with site.worker(registry):
        await eventually(lambda: tried, 20, "never started")
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        try:
            stopped = time.monotonic()
            await eventually(lambda: time.monotonic() > stopped + LEASE, LEASE + 1, every=0.1)
            go.set()
        finally:
            await asyncio.to_thread(server.start)
        await site.drained(name)
    assert entered == [1]
    assert tried == [1, 1], "refused before its effect, and run again as if it had never been tried"


@pytest.mark.timeout(60)
async def test_a_plain_function_that_waited_for_a_thread_does_not_start_after_the_lease(
    site_on_own_postgres: Site, own_postgres: Stack
) -> None:
    site, registry, threads = site_on_own_postgres, Registry(), 64
    name, begun, go = site.topic(), dict[str, float](), threading.Event()

    @registry.handler(name, scope="payments", key="id")
    def work(message: Message) -> Any:
        begun[message.id] = time.monotonic()
        go.wait(30)

    site.produce(name, [message(f"k{n}") for n in range(threads + 6)])
    server = own_postgres.server("postgres")
    async with site.worker(registry):
        await eventually(lambda: len(begun) == threads, 20, "threads are free")
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        try:
            stopped = time.monotonic()
            await eventually(lambda: time.monotonic() > stopped + LEASE, LEASE + 1, every=0.1)
            go.set()
            with pytest.raises(AssertionError, match="not within"):
                await eventually(lambda: len(begun) > threads, 1.5, every=0.05)
        finally:
            go.set()
            await asyncio.to_thread(server.start)
        await site.drained(name)
    assert len(begun) == threads + 6
