"""Connections to the broker are reset in the moment of a write: the worker connects anew and goes on."""

import signal
from collections import Counter

import pytest

from tests.engine.load import assert_each_ran_once, duplicated, send, starts
from tests.engine.site import Site
from tests.waiting import eventually

pytestmark = pytest.mark.stories


@pytest.mark.timeout(90)
async def test_reset_connections_cost_time_only(site: Site) -> None:
    name, results = site.topic(2), site.topic(letters=False)
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_RESULTS": results, "VICTIM_SECONDS": "0.02"}
    sent = send(site, name, duplicated([f"k{n}" for n in range(300)], 2))
    worker = site.spawn(VICTIM_BUG="resets_connections", ONCEBOX_CONCURRENCY="4")

    def all_started() -> bool:
        assert worker.popen.poll() is None, f"the worker ended\n{worker.tail()}"
        return len(starts(site)) == 300

    await eventually(all_started, 40, "it stands still", every=0.1)
    await site.drained(name)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.tail()
    await assert_each_ran_once(site, sent)
    answered = Counter(dict(seen.headers)["oncebox.source"] for seen in site.read(results))
    assert answered.keys() == {f"{name}/{p}@{o}".encode() for p, o in sent}
