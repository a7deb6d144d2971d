"""Handlers for stories about backlogs, and the ways there."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from tests.backlog.telling import Telling
from tests.engine.site import Site
from tests.stack.client import Sent
from worker import Registry, Reject
from worker.app.choosing import Plan
from worker.app.forecast import forecast
from worker.app.replaying import replay
from worker.app.resuming import resume
from worker.rules.windows import Window

EVERYTHING = Window(since=0)
TO_THE_END = Window(since=0, until=4_000_000_000_000)


class Order(BaseModel):
    """What the stories send."""

    id: str
    tenant: str = "acme"
    amount: int = 1


class Shop:
    """One handler that counts its runs."""

    def __init__(self, topic: str, *more: str, result_topic: str | None = None) -> None:
        self.topic = topic
        self.ran: Counter[str] = Counter()
        self.gate: asyncio.Event | None = None
        self.began = asyncio.Event()
        self.registry = Registry()

        @self.registry.handler(
            (topic, *more),
            scope="jobs",
            key="id",
            tenant="tenant",
            kind="repeatable",
            retries=2,
            result_topic=result_topic,
        )
        async def order(message: Order) -> dict[str, Any]:
            self.ran[message.id] += 1
            self.began.set()
            if self.gate is not None:
                await self.gate.wait()
            if message.amount < 0:
                raise Reject("negative", code="negative")
            if message.amount == 666:
                raise RuntimeError("never works")
            return {"id": message.id}


def body(key: str, **more: Any) -> bytes:
    return json.dumps({"id": key, "tenant": "acme", **more}).encode()


def orders(keys: Sequence[str]) -> list[Sent | bytes]:
    return [body(key) for key in keys]


async def replayed(site: Site, shop: Shop, telling: Telling, plan: Plan | None = None, **changes: str) -> int:
    """Run a replay in this process; its exit code."""
    plan = plan or Plan(shop.topic, EVERYTHING)
    settings = site.settings(**changes)
    running = replay(settings, shop.registry, plan, actor="test", show=telling, stop=asyncio.Event())
    return await asyncio.wait_for(running, 60)


async def resumed(site: Site, shop: Shop, telling: Telling, job: int) -> int:
    running = resume(site.settings(), shop.registry, job, show=telling, stop=asyncio.Event())
    return await asyncio.wait_for(running, 60)


async def foretold(site: Site, shop: Shop, telling: Telling, plan: Plan | None = None) -> dict[str, Any]:
    report = await asyncio.wait_for(
        forecast(site.settings(), shop.registry, plan or Plan(shop.topic, EVERYTHING), telling), 60
    )
    assert report is not None
    return report
