"""A handler that kills its process does not take the group down: its entry runs alone, and ends as a dead letter."""

import json
import signal
from collections import Counter

import pytest

from tests.conftest import ConsumeAll, MakeTopic
from tests.engine.site import Site
from tests.stack.client import Sent
from worker.stack import Stack


@pytest.mark.timeout(120)
async def test_a_message_that_kills_every_worker_is_dead_lettered(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll, stack: Stack
) -> None:
    name = topic(2)
    stack.create_topics({f"dlq.{name}": 1})
    site.extra["VICTIM_TOPICS"] = f"repeatable={name}"
    bodies = [json.dumps({"id": f"k{n}", "dies": n == 7}).encode() for n in range(40)]
    site.produce(name, [Sent(body, partition=n % 2) for n, body in enumerate(bodies)])
    deaths = 0
    while deaths < 3:
        worker = site.spawn("poison")
        assert await worker.ended(60) == -signal.SIGKILL, worker.tail()
        deaths += 1
    last = site.spawn("poison")
    await site.drained(name)
    last.signal(signal.SIGTERM)
    assert await last.ended() == 0, last.tail()

    (letter,) = consume_all(f"dlq.{name}")
    assert dict(letter.headers)["oncebox.reason"] == b"crash_loop"
    assert letter.value == bodies[7]
    states = Counter((await site.states()).values())
    assert states == {"completed": 39, "failed_retryable": 1}
    third = site.processes[2].log.read_text()
    assert '"event": "runs_alone"' in third
    crashes = await site.fetch("SELECT max(crashes) FROM oncebox.entries WHERE state = 2")
    assert crashes[0][0] <= 2, "neighbours do not die with it once it runs alone"
