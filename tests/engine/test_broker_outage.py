"""The only broker goes away under load and comes back: the worker waits, and goes on by itself."""

import asyncio
import signal
from collections import defaultdict

import pytest

from tests.engine.load import assert_each_ran_once, duplicated, send, starts
from tests.engine.sampler import Sampler
from tests.engine.site import Site
from tests.waiting import eventually
from worker.stack import LocalServer, Stack

pytestmark = pytest.mark.stories


async def hurt(server: LocalServer, fault: str) -> None:
    match fault:
        case "killed":
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        case "stopped":
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(3)  # longer than the session timeout of its members
            await asyncio.to_thread(server.start)
        case "frozen":
            await asyncio.to_thread(server.pause)
            await asyncio.sleep(8)  # the fault itself: long enough for members to be evicted
            await asyncio.to_thread(server.resume)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ["killed", "stopped", "frozen"])
async def test_a_broker_that_comes_back_finds_nothing_lost_and_nothing_doubled(
    site_on_own_kafka: Site, own_kafka: Stack, fault: str
) -> None:
    site, partitions = site_on_own_kafka, 4
    name, results = site.topic(partitions), site.topic(2, letters=False)
    await Sampler.prepare(site)
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_RESULTS": results, "VICTIM_SECONDS": "0.05"}
    site.extra |= {"ONCEBOX_CONCURRENCY": "4", "ONCEBOX_REQUEST_TIMEOUT": "3s"}
    sent = send(site, name, duplicated([f"k{n}" for n in range(400)], partitions))
    workers = [site.spawn(), site.spawn()]
    with Sampler(site, name, partitions) as sampler:
        await eventually(lambda: len(starts(site)) > 60, 30, "no load", every=0.05)
        await hurt(own_kafka.server("kafka"), fault)
        await site.drained(name)
        await site.quiet()
    assert [worker.popen.poll() for worker in workers] == [None, None], f"a worker gave up\n{site.tails()}"
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0, worker.tail()

    await assert_each_ran_once(site, sent)
    assert not await sampler.premature(sent)
    assert await site.count("doubts") == await site.count("parked") == 0
    assert not site.dead_letters(name)
    answered: dict[bytes | None, set[bytes | None]] = defaultdict(set)
    bodies: dict[bytes | None, set[bytes | None]] = defaultdict(set)
    for seen in site.read(results):
        headers = dict(seen.headers)
        answered[headers["oncebox.key"]].add(headers["oncebox.source"])
        bodies[headers["oncebox.key"]].add(seen.value)
    sources = {source for found in answered.values() for source in found}
    assert sources == {f"{name}/{p}@{o}".encode() for p, o in sent}, "every record was answered"
    assert all(len(found) == 1 for found in bodies.values()), "byte-identical per key"
