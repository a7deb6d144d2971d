"""What waits for its connection has not begun: it never begins once its partition was taken, or its worker stops."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Context, Registry, Transaction
from worker.engine.pipeline import Pipeline
from worker.rules.lanes import Lane


class Message(BaseModel):
    """What the tests send."""

    id: str


class Waiting:
    """A transactional handler on one connection: the first message keeps it until the gate opens."""

    settings: ClassVar[dict[str, Any]] = {"ONCEBOX_TRANSACTION_CONNECTIONS": "1"}

    def __init__(self, site: Site) -> None:
        self.site = site
        self.topic = site.topic()
        self.registry = Registry()
        self.gate = asyncio.Event()
        self.fences: dict[str, int] = {}

        @self.registry.handler(self.topic, scope="payments", key="id", kind="transactional")
        async def work(message: Message, context: Context, transaction: Transaction) -> None:
            self.fences[message.id] = context.fence
            if message.id == "first":
                await self.gate.wait()

        site.produce(self.topic, [Sent(message(one), key=one.encode()) for one in ("first", "second")])

    async def claimed(self) -> int:
        """Wait until both are; the fence of the second."""

        async def both() -> bool:
            return list((await self.site.states()).values()) == ["in_progress"] * 2

        await eventually(both, 20, "not both are claimed")
        [row] = await self.site.fetch("SELECT fence FROM oncebox.readable_entries WHERE key = 'second'")
        return int(row["fence"])


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], asyncio.Event]:
    """How many handlers ran, or waited for a connection, when partitions were taken away or the worker stopped."""
    running: list[int] = []
    over = asyncio.Event()
    for name in ("revoke", "stop"):
        whole = getattr(Pipeline, name)

        def told(pipeline: Pipeline, lanes: Sequence[Lane], whole: Any = whole) -> None:
            running.append(len(pipeline.running()))
            whole(pipeline, lanes)
            over.set()

        monkeypatch.setattr(Pipeline, name, told)
    return running, over


async def test_it_is_claimed_anew_by_whoever_has_the_partition_then(
    site: Site, watched: tuple[list[int], asyncio.Event]
) -> None:
    waiting = Waiting(site)
    running, over = watched
    async with site.worker(waiting.registry, **waiting.settings):
        fence = await waiting.claimed()
        async with site.worker(waiting.registry, **waiting.settings):
            await asyncio.wait_for(over.wait(), 20)
            waiting.gate.set()
            await site.drained(waiting.topic)
    assert running[0] == 2, "the second did not wait for the connection"
    assert waiting.fences["second"] > fence
    assert await site.states() == {"first": "completed", "second": "completed"}


async def test_a_stop_gives_it_back(site: Site, watched: tuple[list[int], asyncio.Event]) -> None:
    waiting = Waiting(site)
    running, over = watched

    async def open_the_gate() -> None:
        await over.wait()
        waiting.gate.set()

    opening = asyncio.create_task(open_the_gate())
    async with site.worker(waiting.registry, **waiting.settings):
        await waiting.claimed()
    await opening
    assert running[0] == 2, "the second did not wait for the connection"
    assert await site.states() == {"first": "completed", "second": "failed_retryable"}
    assert set(waiting.fences) == {"first"}
