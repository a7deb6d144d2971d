"""Members join and leave the group about every second: partitions wander, work does not repeat."""

import asyncio
import os
import random
import signal
import time
from collections import Counter

import pytest

from tests.engine.load import assert_each_ran_once, duplicated, send, starts
from tests.engine.sampler import Sampler
from tests.engine.site import Process, Site

pytestmark = pytest.mark.stories
SECONDS = float(os.environ.get("ONCEBOX_TEST_STORM_SECONDS", "30"))
PARTITIONS = 6


async def storm(site: Site, signals: list[signal.Signals], seed: int) -> None:
    """One member joins and one leaves, in turns; two at least stay."""
    chance = random.Random(seed)
    members = [site.spawn(), site.spawn(), site.spawn()]
    until = time.monotonic() + SECONDS
    leavers: list[Process] = []
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(0.3, 0.7))
        joined = [member for member in members if member.events("worker_started")]
        if len(joined) > 1:
            leaver = chance.choice(joined)
            leaver.signal(chance.choice(signals))
            members.remove(leaver)
            leavers.append(leaver)
            members.append(site.spawn())
    assert len(leavers) > SECONDS / 3, "too calm"
    for leaver in leavers:
        assert await leaver.ended() in (0, -signal.SIGKILL), leaver.tail()


async def play(site: Site, signals: list[signal.Signals]) -> dict[tuple[int, int], str]:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    name = site.topic(PARTITIONS)
    await Sampler.prepare(site)
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_SECONDS": "0.02"}
    site.extra |= {"ONCEBOX_CONCURRENCY": "4", "ONCEBOX_IN_FLIGHT": "32", "ONCEBOX_SESSION_TIMEOUT": "1s"}
    sent = send(site, name, duplicated([f"k{n}" for n in range(int(SECONDS * 120))], PARTITIONS, seed=seed))
    with Sampler(site, name, PARTITIONS) as sampler:
        await storm(site, signals, seed)
        await site.drained(name)
        await site.quiet()
    for process in site.processes:
        if process.popen.poll() is None:
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0, process.tail()
    assert not await sampler.premature(sent), "never ahead of unfinished work"
    assert not site.dead_letters(name)
    return sent


@pytest.mark.timeout(180)
async def test_members_that_leave_cleanly_leave_nothing_in_doubt_and_nothing_to_run_again(site: Site) -> None:
    sent = await play(site, [signal.SIGTERM])
    await assert_each_ran_once(site, sent)
    assert await site.count("doubts") == await site.count("parked") == 0
    finished = Counter[str]()
    for process in site.processes:
        for line in process.events("records_finished"):
            finished[line["outcome"]] += line["count"]
    assert finished.keys() == {"executed", "replayed"}
    assert finished["executed"] == len(sent) // 2, "what was finished behind a gap comes again, and is only replayed"


@pytest.mark.timeout(180)
async def test_members_that_are_killed_lose_nothing_and_double_nothing(site: Site) -> None:
    sent = await play(site, [signal.SIGTERM, signal.SIGKILL])
    states = await site.states()
    assert states.keys() == set(sent.values()), "nothing is lost"
    assert set(states.values()) <= {"completed", "unknown"}
    begun = starts(site)
    assert max(begun.values()) == 1, "no external effect is started twice"
    assert all(begun[key] == 1 for key, state in states.items() if state == "completed")
    unknown = {key for key, state in states.items() if state == "unknown"}
    kept = await site.fetch(
        "SELECT encode(e.key, 'escape') AS key, count(*) AS n"
        " FROM oncebox.parked p JOIN oncebox.entries e USING (id) GROUP BY 1"
    )
    assert {row["key"] for row in kept} == unknown, "the records of entries in doubt, and only those, are kept"
    assert {row["n"] for row in kept} <= {2}
