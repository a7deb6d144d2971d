"""SIGTERM under load: what runs may end, what never started is given back, the next worker finds nothing in doubt."""

import signal
import time

import pytest

from tests.engine.load import assert_each_ran_once, duplicated, message, send, starts
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually

pytestmark = pytest.mark.stories


async def test_a_worker_told_to_stop_leaves_nothing_in_doubt_and_nothing_lost(site: Site) -> None:
    name = site.topic(2)
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_SECONDS": "0.1"}
    sent = send(site, name, duplicated([f"k{n}" for n in range(400)], 2))
    first = site.spawn(ONCEBOX_CONCURRENCY="8", ONCEBOX_IN_FLIGHT="64")
    await eventually(lambda: len(starts(site)) > 30, 20, "no load", every=0.02)
    told = time.monotonic()
    first.signal(signal.SIGTERM)
    assert await first.ended(10) == 0, first.tail()
    assert time.monotonic() - told < 4, "quick handlers need no drain time"
    rows = await site.fetch("SELECT state, attempts, crashes, count(*) AS n FROM oncebox.entries GROUP BY 1, 2, 3")
    found = {(row["state"], row["attempts"], row["crashes"]): row["n"] for row in rows}
    assert found.keys() == {(2, 0, 0), (3, 0, 0)}, "completed, or given back without counting anything"
    assert found[2, 0, 0] == len(starts(site))
    assert await site.count("doubts") == await site.count("open_claims") == 0
    assert await site.lag(name) > 0

    second = site.spawn(VICTIM_SECONDS="0")
    await site.drained(name)
    await site.quiet()
    second.signal(signal.SIGTERM)
    assert await second.ended() == 0
    await assert_each_ran_once(site, sent)


async def test_handlers_that_outlive_the_drain_time_are_asked_to_stop(site: Site) -> None:
    name = site.topic()
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    site.produce(name, [message("inside", seconds=60)])
    worker = site.spawn(ONCEBOX_DRAIN="500ms")
    await eventually(lambda: starts(site), 20, "never started")
    worker.signal(signal.SIGTERM)
    assert await worker.ended(8) == 0, worker.tail()
    assert await site.states() == {"inside": "unknown"}
    assert await site.count("doubts") == 1
    second = site.spawn()
    await site.drained(name)
    assert await site.count("parked") == 1, "its record is kept, not run again"
    second.signal(signal.SIGTERM)
    assert await second.ended() == 0
    assert starts(site) == {"inside": 1}


async def test_a_second_signal_exits_at_once(site: Site) -> None:
    name = site.topic()
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    site.produce(name, [Sent(message("long", seconds=60))])
    worker = site.spawn(ONCEBOX_DRAIN="60s")
    await eventually(lambda: starts(site), 20, "never started")
    worker.signal(signal.SIGTERM)
    await worker.says("worker_stopping")
    assert worker.popen.poll() is None
    told = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert await worker.ended(5) != 0
    assert time.monotonic() - told < 2
