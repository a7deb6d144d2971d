"""The checks of these stories catch workers with bugs that we planted."""

import signal

import pytest

from tests.engine.load import assert_each_ran_once, duplicated, message, send, starts
from tests.engine.sampler import Sampler
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually

pytestmark = pytest.mark.stories


async def test_the_witness_catches_a_worker_that_runs_every_duplicate(site: Site) -> None:
    name = site.topic(2)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    sent = send(site, name, duplicated([f"k{n}" for n in range(50)], 2))
    site.spawn(VICTIM_BUG="runs_every_duplicate")
    await eventually(lambda: max(starts(site).values(), default=0) > 1, 20, "nothing ran twice", every=0.05)
    with pytest.raises(AssertionError):
        await assert_each_ran_once(site, sent)


async def test_the_counts_catch_a_worker_that_loses_records(site: Site) -> None:
    name = site.topic()
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    sent = send(site, name, [Sent(message(f"k{n}")) for n in range(50)])
    worker = site.spawn(VICTIM_BUG="drops_the_last_of_a_batch")
    await site.drained(name)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    with pytest.raises(AssertionError, match="lost or invented"):
        await assert_each_ran_once(site, sent)


@pytest.mark.parametrize("bug", ["", "commits_what_it_has_read"])
async def test_the_sampler_catches_a_worker_that_commits_ahead_of_its_work(site: Site, bug: str) -> None:
    name = site.topic()
    await Sampler.prepare(site)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    sent = send(site, name, [Sent(message(f"k{n}", seconds=0.4)) for n in range(30)])
    with Sampler(site, name, 1) as sampler:
        worker = site.spawn(VICTIM_BUG=bug, ONCEBOX_CONCURRENCY="10")
        await site.drained(name)
        await site.quiet()
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert len(sampler.samples) > 5
    assert bool(await sampler.premature(sent)) == bool(bug)
