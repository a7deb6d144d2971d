"""Entries in doubt get settled: none lost, none done twice, whatever a naive reconciler says and whoever dies."""

import json
import signal
import time
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from tests.conftest import MakeTopic
from tests.engine.site import Process, Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Registry

pytestmark = pytest.mark.stories
LEASE, SETTLE, MARGIN = 3.0, 0.5, 5.0


class Message(BaseModel):
    """What the tests send."""

    id: str


def asking(site: Site, *, timeout: int = 5, horizon: int = 1, until: float = 60, first: float = 0.3) -> float:
    """Let workers of this site ask a naive reconciler; the quiet time."""
    site.extra["VICTIM_TIMEOUT"] = f"{timeout}s"
    site.extra["VICTIM_HORIZON"] = f"{horizon}s"
    how = {"first": first, "most": 0.5, "until": until, "per_second": 1000}
    site.extra["VICTIM_RECONCILE"] = json.dumps(how)
    return timeout + LEASE + horizon


async def in_state(site: Site, *states: int) -> int:
    rows = await site.fetch("SELECT count(*) FROM oncebox.entries WHERE state = ANY($1::int[])", list(states))
    return int(rows[0][0])


async def told(site: Site, what: str) -> list[Any]:
    return await site.fetch(
        "SELECT h.at, encode(e.key, 'escape') AS key, h.detail FROM oncebox.history h JOIN oncebox.entries e USING (id)"
        " WHERE h.detail LIKE $1 ORDER BY h.at",
        f"{what}%",
    )


def starts(site: Site) -> Counter[str]:
    return Counter(w["key"] for w in site.witness() if w["what"] == "start")


async def stopped(*processes: Process) -> None:
    for process in processes:
        process.signal(signal.SIGTERM)
    for process in processes:
        assert await process.ended() == 0, process.tail()


@pytest.mark.timeout(180)
async def test_a_thousand_entries_of_dead_workers_are_all_settled_and_none_is_lost(
    site: Site, topic: MakeTopic
) -> None:
    await site.fetch("CREATE TABLE oncebox.effects (key text, fence bigint)")
    names = {"external": site.topic(2), "transactional": topic(2), "repeatable": topic(2)}
    site.extra["VICTIM_TOPICS"] = ",".join(f"{kind}={name}" for kind, name in names.items())
    quiet = asking(site, until=13)
    external = {f"{word}-{n}" for word in ("done", "not-done", "nobody-knows") for n in range(120)}
    keys = {"external": external, **{k: {f"{k}-{n}" for n in range(340)} for k in ("transactional", "repeatable")}}
    bodies: dict[str, bytes] = {}
    for kind, name in names.items():
        for key in keys[kind]:
            bodies[key] = json.dumps({"id": key, "stalls": "before" if key.startswith("not-done") else ""}).encode()
        records = [
            Sent(bodies[key], partition=n % 2, headers=(("x", key.encode()),)) for n, key in enumerate(keys[kind])
        ]
        site.produce(name, records)
    total = sum(len(each) for each in keys.values())

    async with site.worker(idle_registry(topic), ONCEBOX_GROUP=f"{site.group}-janitor"):
        # It may take its time to claim them all; the quiet time is the one that the survivors declare.
        slow = {"VICTIM_SECONDS": "300", "VICTIM_STALLS": "300", "VICTIM_TIMEOUT": "5m"}
        victim = site.spawn(**slow, ONCEBOX_IN_FLIGHT="2000", ONCEBOX_CONCURRENCY="1500")

        async def all_in_progress() -> bool:
            written = sum(1 for key in starts(site) if not key.startswith("not-done"))
            return await in_state(site, 1) == total and written == 240

        await eventually(all_in_progress, 60, f"not all claimed\n{site.tails()}", every=0.1)
        declared = f"UPDATE oncebox.operations SET quiet = interval '{quiet - LEASE} seconds' WHERE kind = 1"
        await site.fetch(declared)
        victim.signal(signal.SIGKILL)
        killed = time.monotonic()

        async def none_in_progress() -> bool:
            return await in_state(site, 1) == 0

        await eventually(none_in_progress, LEASE + SETTLE + MARGIN, "still in progress", every=0.1)
        settled = time.monotonic()
        assert settled - killed < LEASE + SETTLE + MARGIN
        assert await in_state(site, 4) == len(external)

    survivors = [site.spawn(), site.spawn()]

    async def over() -> bool:
        return await in_state(site, 2) == total - 120 and await in_state(site, 4) == 120

    await eventually(over, 60, f"not settled\n{site.tails()}", every=0.2)
    name = names["external"]
    await eventually(lambda: len(site.dead_letters(name)) >= 120, 60, f"no letters\n{site.tails()}", every=0.3)
    await site.drained(*names.values())
    await stopped(*survivors)

    states = await site.states()
    assert states.keys() == set(bodies), "nothing is lost"
    assert {key for key, state in states.items() if state == "unknown"} == {
        k for k in external if k[0:2] == "no" and "knows" in k
    }
    effects = Counter(r["key"] for r in await site.fetch("SELECT key FROM oncebox.effects"))
    assert effects == Counter(keys["transactional"]), "effects exactly once"
    assert {w["key"] for w in site.witness() if w["what"] == "repeat"} == keys["repeatable"]
    assert starts(site) == Counter(external), "every external effect once"
    again = [w for w in site.witness() if w["what"] == "start" and w["key"].startswith("not-done")]
    assert min(w["at"] for w in again) - settled > quiet - SETTLE - 1, "not before the quiet time"
    assert all(w["late"] for w in again), "run again out of order, and told so"
    said = Counter((row["key"].split("-")[0], row["detail"]) for row in await told(site, ""))
    assert {detail for word, detail in said if word == "done"} == {"executed: settled"}, "believed at once"
    assert (said["done", "executed: settled"], said["not", "not_executed: settled"]) == (120, 120)
    letters = site.dead_letters(name)
    assert Counter(letter.value for letter in letters) == Counter(bodies[k] for k in external if "knows" in k)
    for letter in letters:
        key = json.loads(letter.value or b"")["id"]
        assert (letter.reason, letter.headers) == ("unknown", (("x", key.encode()),))
        assert json.loads(letter.about["oncebox.probes"] or b""), "with what the probes said"


def idle_registry(topic: MakeTopic) -> Registry:
    """A worker that has nothing to do but to keep house."""
    registry = Registry()

    @registry.handler(topic(1), scope="jobs", key="id", kind="repeatable")
    async def idle(message: Message) -> None: ...

    return registry


@pytest.mark.timeout(90)
@pytest.mark.parametrize("where", ["before", "inside"])
async def test_a_worker_that_sleeps_through_a_naive_verdict_causes_no_second_effect(
    site: Site, topic: MakeTopic, where: str
) -> None:
    """Stopped right before its effect, or inside it right before it calls; the search finds nothing; then it wakes."""
    name = topic(1)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    asking(site, horizon=4)
    site.produce(name, [json.dumps({"id": "k", "stalls": where}).encode()])
    sleeper = site.spawn(VICTIM_STALLS="0.5")
    await eventually(lambda: [w for w in site.witness() if w["what"] == "stalls"], 30, sleeper.tail(), every=0.01)
    sleeper.signal(signal.SIGSTOP)
    other = site.spawn()

    async def was_asked() -> list[Any]:
        return await told(site, "not_executed, before the quiet time")

    await eventually(was_asked, 40, f"nobody was asked\n{site.tails()}", every=0.1)
    assert starts(site) == {}, "its word is not believed yet"
    sleeper.signal(signal.SIGCONT)

    async def completed() -> bool:
        return await site.states() == {"k": "completed"}

    await eventually(completed, 40, f"not settled\n{site.tails()}", every=0.2)
    await site.drained(name)
    await sleeper.says("session_replaced")
    await stopped(sleeper, other)
    assert starts(site) == {"k": 1}, "one effect"
    assert await in_state(site, 1, 3, 4) == 0


@pytest.mark.timeout(90)
async def test_a_worker_that_wakes_after_the_verdict_finds_its_effect_refused(site: Site, topic: MakeTopic) -> None:
    name = topic(1)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    asking(site, timeout=1)
    site.produce(name, [json.dumps({"id": "k", "stalls": "before"}).encode()])
    sleeper = site.spawn(VICTIM_STALLS="0.5")
    await eventually(lambda: [w for w in site.witness() if w["what"] == "stalls"], 30, sleeper.tail(), every=0.01)
    sleeper.signal(signal.SIGSTOP)
    other = site.spawn()

    async def ran_again() -> bool:
        return await site.states() == {"k": "completed"}

    await eventually(ran_again, 40, f"not run again\n{site.tails()}", every=0.2)
    assert starts(site) == {"k": 1}
    sleeper.signal(signal.SIGCONT)
    await sleeper.says("session_replaced")
    await site.drained(name)
    await stopped(sleeper, other)
    assert starts(site) == {"k": 1}, "one effect"


@pytest.mark.timeout(90)
async def test_a_search_that_lags_its_writes_by_less_than_the_horizon_causes_no_second_effect(
    site: Site, topic: MakeTopic
) -> None:
    name = topic(1)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    asking(site, timeout=1, horizon=9)
    site.produce(name, [json.dumps({"id": "k", "dies": True}).encode()])
    first = site.spawn("after_effect")
    assert await first.ended() == -signal.SIGKILL
    other = site.spawn(VICTIM_LAG="8")

    async def completed() -> bool:
        return await site.states() == {"k": "completed"}

    await eventually(completed, 40, f"not settled\n{site.tails()}", every=0.2)
    await site.drained(name)
    await stopped(other)
    assert starts(site) == {"k": 1}, "one effect"
    wrong = await told(site, "not_executed, before the quiet time")
    right = await told(site, "executed: settled")
    assert wrong[0]["at"] < right[0]["at"], "the search said first that nothing was executed"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", ["before_verdict", "after_verdict", "before_report"])
async def test_a_janitor_that_dies_over_a_doubt_loses_nothing(site: Site, topic: MakeTopic, point: str) -> None:
    name = site.topic(1)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    asking(site, timeout=1, until=2 if point == "before_report" else 60)
    key = "nobody-knows" if point == "before_report" else "k"
    body = json.dumps({"id": key, "dies": True}).encode()
    site.produce(name, [body])
    assert await site.spawn("after_effect").ended() == -signal.SIGKILL
    assert await site.spawn(point).ended() == -signal.SIGKILL, site.tails()
    last = site.spawn()
    if point == "before_report":

        async def reported() -> bool:
            rows = await site.fetch("SELECT 1 FROM oncebox.doubts WHERE reported_at IS NOT NULL")
            return len(rows) == 1

        await eventually(reported, 40, f"not reported\n{site.tails()}", every=0.2)
        assert [letter.value for letter in site.dead_letters(name)] in ([body], [body, body]), "a second, never none"
    else:

        async def completed() -> bool:
            return await site.states() == {key: "completed"} and await site.count("parked") == 0

        await eventually(completed, 40, f"not settled\n{site.tails()}", every=0.2)
        assert starts(site) == {key: 1}
    await site.drained(name)
    await stopped(last)
