"""A replay that is killed and gone on with, beside live traffic on the same topic: nothing twice, nothing missing.

ONCEBOX_TEST_BACKLOG=200000 runs the large one.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from tests.backlog.process import Command
from tests.engine.load import message
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually

RECORDS = int(os.environ.get("ONCEBOX_TEST_BACKLOG", "6000"))
REGISTRY = "tests.backlog.registry"
PARTITIONS = 4


@pytest.mark.timeout(120 + RECORDS // 100)
async def test_half_done_half_missing_killed_twice_beside_live_traffic(site: Site) -> None:
    topic = site.topic(PARTITIONS)
    site.extra["BACKLOG_TOPIC"] = topic
    await site.fetch("CREATE TABLE oncebox.effects (key text)")
    done = [f"done-{n}" for n in range(RECORDS // 2)]
    missing = [f"missing-{n}" for n in range(RECORDS // 2)]
    patience = 60 + RECORDS / 100
    await asyncio.to_thread(site.produce, topic, [Sent(message(key), key=key.encode()) for key in done])
    live = Command(site, "run", REGISTRY)
    try:
        await site.drained(topic, within=patience)
        live.popen.send_signal(signal.SIGTERM)
        assert await live.ended() == 0, live.log[-3000:]
        # The outage: these were skipped, among redeliveries of what was done before.
        since = datetime.now(UTC).isoformat()
        pairs = [key for pair in zip(done, missing, strict=True) for key in pair]
        places = await asyncio.to_thread(site.produce, topic, [Sent(message(k), key=k.encode()) for k in pairs])
        ends = {p: max(o for q, o in places if q == p) + 1 for p in range(PARTITIONS)}
        site.put_group(topic, ends)
        live = Command(site, "run", REGISTRY)
        async with traffic(site, topic, missing) as lively:
            # Not faster than it can be killed.
            words = ["replay", topic, REGISTRY, "--since", since, "--rate", str(RECORDS / 12), "--json"]
            first = Command(site, *words)
            job = (await first.says("started"))["job"]
            await killed_at(site, first, job, RECORDS * 0.2)
            second = Command(site, "replay", REGISTRY, "--resume", str(job), "--json")
            await killed_at(site, second, job, RECORDS * 0.5)
            third = Command(site, "replay", REGISTRY, "--resume", str(job), "--json")
            assert await third.ended(patience) == 0, third.log[-3000:]
            assert third.report["done"] == third.report["total"] >= RECORDS
        await site.drained(topic, within=patience)
        live.popen.send_signal(signal.SIGTERM)
        assert await live.ended() == 0
    finally:
        live.close()
    rows = await site.fetch("SELECT key, count(*) AS n FROM oncebox.effects GROUP BY key")
    assert [row["key"] for row in rows if row["n"] > 1] == []
    assert {row["key"] for row in rows} == {*done, *missing, *lively}
    assert await site.count("parked") == 0


async def killed_at(site: Site, command: Command, job: int, records: float) -> None:
    """Wait until the job has come so far, then kill its process."""

    async def far_enough() -> bool:
        assert command.popen.poll() is None, command.log[-3000:]
        query = "SELECT sum(position - start_offset) AS n FROM oncebox.job_spans WHERE job = $1"
        return int((await site.fetch(query, job))[0]["n"]) >= records

    await eventually(far_enough, 60 + RECORDS / 100, "the replay does not get on", every=0.05)
    await command.kill()


@contextlib.asynccontextmanager
async def traffic(site: Site, topic: str, missing: list[str]) -> AsyncIterator[set[str]]:
    """New messages, and redeliveries of what the replay is about, until the end."""
    sent: set[str] = set()
    over = asyncio.Event()

    async def go_on() -> None:
        step = 0
        while not over.is_set():
            fresh = [f"live-{step}-{n}" for n in range(10)]
            again = missing[(step * 37) % len(missing) :][:10]
            await asyncio.to_thread(site.produce, topic, [Sent(message(k), key=k.encode()) for k in fresh + again])
            sent.update(fresh)
            step += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 0.2)

    task = asyncio.create_task(go_on())
    try:
        yield sent
    finally:
        over.set()
        await task
