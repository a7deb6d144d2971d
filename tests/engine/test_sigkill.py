"""SIGKILL at every point of a record's way: nothing lost, nothing external or transactional done twice."""

import json
import signal
from collections import Counter
from typing import Any

import pytest

from tests.conftest import MakeTopic
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually

KINDS = ("external", "transactional", "repeatable")
POINTS = (
    "before_claim",
    "after_claim",
    "before_effect",
    "inside_effect",
    "after_effect",
    "after_completion",
    "before_commit",
)


async def prepare(site: Site, topic: MakeTopic, kind: str) -> str:
    name = topic(2)
    site.extra["VICTIM_TOPICS"] = f"{kind}={name}"
    await site.fetch("CREATE TABLE oncebox.effects (key text, fence bigint)")
    return name


def records(count: int, dies_at: int) -> list[Sent]:
    bodies = [json.dumps({"id": f"k{n}", "dies": n == dies_at}).encode() for n in range(count)]
    # Every message twice, on different partitions.
    return [Sent(b, partition=p) for n, b in enumerate(bodies) for p in (n % 2, (n + 1) % 2)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_worker_loses_nothing_and_doubles_nothing(
    site: Site, topic: MakeTopic, kind: str, point: str
) -> None:
    name = await prepare(site, topic, kind)
    count = 40
    site.produce(name, records(count, dies_at=7))
    first = site.spawn(point)
    assert await first.ended() == -signal.SIGKILL, first.tail()
    committed_early = await site.lag(name)
    assert committed_early > 0, "offsets must not be ahead of unfinished work"
    second = site.spawn()
    await site.drained(name)
    await site.quiet()
    second.signal(signal.SIGTERM)
    assert await second.ended() == 0

    states = await site.states()
    assert states.keys() == {f"k{n}" for n in range(count)}, "nothing is lost"
    match kind:
        case "external":
            await check_external(site, states)
        case "transactional":
            effects = Counter(r["key"] for r in await site.fetch("SELECT key FROM oncebox.effects"))
            assert effects == Counter(states.keys()), "effects exactly once"
            assert set(states.values()) == {"completed"}
        case "repeatable":
            runs = Counter(w["key"] for w in site.witness())
            assert runs.keys() == states.keys()
            assert set(states.values()) == {"completed"}


async def check_external(site: Site, states: dict[str, str]) -> None:
    starts = Counter(w["key"] for w in site.witness() if w["what"] == "start")
    assert max(starts.values(), default=0) <= 1, "an external effect is never started twice"
    assert set(states.values()) <= {"completed", "unknown"}
    for key, state in states.items():
        if state == "completed":
            assert starts[key] == 1
    doubts = {
        r["key"]
        for r in await site.fetch(
            "SELECT encode(e.key, 'escape') AS key FROM oncebox.doubts d JOIN oncebox.entries e USING (id)"
        )
    }
    unknown = {key for key, state in states.items() if state == "unknown"}
    assert doubts == unknown, "every doubtful entry is on record"
    parked = {
        r["key"]
        for r in await site.fetch(
            "SELECT encode(e.key, 'escape') AS key FROM oncebox.parked p JOIN oncebox.entries e USING (id)"
        )
    }
    assert unknown <= parked, "the records of doubtful entries are kept"


@pytest.mark.timeout(90)
async def test_a_zombie_enters_no_effect_and_its_late_result_is_accepted(site: Site, topic: MakeTopic) -> None:
    """SIGSTOP for longer than the lease, inside the effect of some keys and before the start of others."""
    name = await prepare(site, topic, "external")
    site.produce(name, records(30, dies_at=-1))
    zombie = site.spawn(VICTIM_SECONDS="1.0", ONCEBOX_CONCURRENCY="4")
    await eventually(lambda: len(site.witness()) >= 4, 30, "nothing started", every=0.02)
    zombie.signal(signal.SIGSTOP)
    second = site.spawn()
    await eventually(lambda: _unknown(site), 40, "the zombie's claims were not settled", every=0.2)
    inside = {w["key"] for w in site.witness() if w["what"] == "start" and w["pid"] == zombie.popen.pid}
    zombie.signal(signal.SIGCONT)
    await site.drained(name)

    async def late_results_are_in() -> bool:
        states = await site.states()
        return all(states[key] == "completed" for key in inside)

    await eventually(late_results_are_in, 30, f"late results missing\n{site.tails()}", every=0.2)
    for process in (zombie, second):
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0, process.tail()
    starts = Counter(w["key"] for w in site.witness() if w["what"] == "start")
    assert max(starts.values()) == 1, "no second external run"


async def _unknown(site: Site) -> list[Any]:
    return await site.fetch("SELECT 1 FROM oncebox.entries WHERE state = 4")
