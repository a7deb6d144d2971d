"""Postgres goes away for longer than the lease, under load: everything waits, nothing is lost, doubled or given up."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import pytest

from tests.engine.load import assert_each_ran_once, duplicated, message, send, starts
from tests.engine.sampler import Sampler
from tests.engine.site import Process, Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker.stack import LocalServer, Stack

pytestmark = pytest.mark.stories
LEASE = 3.0
Fault = Callable[[LocalServer, float], Awaitable[None]]


async def stopped(server: LocalServer, seconds: float) -> None:
    """SIGQUIT, "immediate": nothing is written down, the next start recovers from the log."""
    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)


async def frozen(server: LocalServer, seconds: float) -> None:
    """SIGSTOP: connections stay open and nothing answers."""
    await asyncio.to_thread(server.pause)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.resume)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("fault", "seconds"), [(stopped, 10 * LEASE), (frozen, 2 * LEASE)], ids=["stopped for 30 s", "frozen for 6 s"]
)
async def test_an_outage_longer_than_the_lease_loses_nothing_and_doubles_nothing(
    site_on_own_postgres: Site, own_postgres: Stack, fault: Fault, seconds: float
) -> None:
    site, partitions = site_on_own_postgres, 4
    name = site.topic(partitions)
    await Sampler.prepare(site)
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_SECONDS": "0.05", "ONCEBOX_CONCURRENCY": "8"}
    site.extra |= {"VICTIM_TIMEOUT": "60s", "ONCEBOX_HOLD": "2m"}
    workers = [site.spawn(), site.spawn()]
    for worker in workers:
        await worker.says("partitions_assigned")
    # A handler that runs from before the outage until after it, and the same message on another partition.
    across = [Sent(message("across", seconds=seconds + 2), partition=p) for p in (0, 1)]
    with Sampler(site, name, partitions) as sampler:
        sent = send(site, name, [*across, *duplicated([f"k{n}" for n in range(600)], partitions)])
        await eventually(lambda: len(starts(site)) > 60, 30, "no load", every=0.05)
        await fault(own_postgres.server("postgres"), seconds)
        assert starts(site).total() < 601, "the outage came in the middle of the work"
        await site.drained(name)
        await site.quiet()
    assert [worker.popen.poll() for worker in workers] == [None, None], f"a worker gave up\n{site.tails()}"
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0, worker.tail()

    await assert_each_ran_once(site, sent)
    assert not await sampler.premature(sent)
    assert await site.count("doubts") == await site.count("parked") == await site.count("history") == 0
    assert not site.dead_letters(name)
    assert _commits_during(workers) == 0


def _commits_during(workers: list[Process]) -> int:
    """Sessions that were ended and replaced: running handlers must keep their claims instead."""
    return sum(len(worker.events("session_replaced")) for worker in workers)


@pytest.mark.timeout(60)
async def test_nothing_is_dead_lettered_or_committed_while_postgres_is_away(
    site_on_own_postgres: Site, own_postgres: Stack
) -> None:
    site = site_on_own_postgres
    name = site.topic()
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    worker = site.spawn()
    await worker.says("partitions_assigned")
    server = own_postgres.server("postgres")
    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    try:
        site.produce(name, [b"no json", message("k")])
        await worker.says("claim_broke")
        with pytest.raises(AssertionError, match="not within"):
            await eventually(lambda: site.dead_letters(name), 3, every=0.2)
        assert await site.lag(name) == 2
    finally:
        await asyncio.to_thread(server.start)
    await site.drained(name)
    assert [letter.reason for letter in site.dead_letters(name)] == ["undecodable"]
