"""Everything at once: workers, Postgres and the broker are hurt at random, for ONCEBOX_TEST_CHAOS_SECONDS."""

import asyncio
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from tests.engine.conftest import opened
from tests.engine.load import Place, duplicated, send, starts
from tests.engine.sampler import Sampler
from tests.engine.site import Process, Site
from worker.stack import LocalServer, Stack

SECONDS = float(os.environ.get("ONCEBOX_TEST_CHAOS_SECONDS", "0"))
pytestmark = [
    pytest.mark.stories,
    pytest.mark.skipif(SECONDS == 0, reason="set ONCEBOX_TEST_CHAOS_SECONDS to run it"),
    pytest.mark.timeout(SECONDS * 3 + 200),
]
KINDS = ("external", "transactional", "repeatable")
PARTITIONS = 4
WORKERS = 4


@pytest_asyncio.fixture
async def fragile(own_kafka: Stack, own_postgres: Stack, group: str, tmp_path: Path) -> AsyncIterator[Site]:
    """A site on servers of which none is safe."""
    assert own_kafka.kafka is not None
    assert own_postgres.postgres is not None
    schema = f"t_{random.getrandbits(24):06x}"
    async with opened(Site(own_kafka.kafka.url, own_postgres.postgres.url, schema, group, tmp_path)) as made:
        yield made


@dataclass
class Chaos:
    """Hurts one thing at a time, at random, and writes down what it did."""

    site: Site
    kafka: LocalServer
    postgres: LocalServer
    chance: random.Random
    members: list[Process] = field(default_factory=list)
    leaving: list[Process] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    async def run(self) -> None:
        faults: dict[Callable[[], Awaitable[None]], int] = {
            self.kill: 6,
            self.end: 4,
            self.freeze: 3,
            self.terminate_backends: 4,
            self.restart_postgres: 2,
            self.freeze_postgres: 1,
            self.restart_kafka: 1,
            self.freeze_kafka: 1,
        }
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(self.chance.uniform(0.2, 1.5))
            (fault,) = self.chance.choices(list(faults), weights=list(faults.values()))
            self.log.append(f"{time.monotonic():.2f} {fault.__name__}")
            await fault()
            for member in list(self.members):
                if member.popen.poll() is None:
                    continue
                # A worker may refuse to start while something is away; once started it goes on by itself.
                refused = not member.events("worker_started")
                assert refused or member.popen.poll() == -signal.SIGKILL, member.tail()
                self.members.remove(member)
                self.site.processes.remove(member)
            while len(self.members) < WORKERS:
                self.members.append(self.site.spawn())

    def _member(self) -> Process | None:
        joined = [member for member in self.members if member.events("worker_started")]
        return self.chance.choice(joined) if joined else None

    async def kill(self) -> None:
        if member := self._member():
            member.signal(signal.SIGKILL)
            await member.ended()

    async def end(self) -> None:
        if member := self._member():
            member.signal(signal.SIGTERM)
            self.members.remove(member)
            self.leaving.append(member)

    async def freeze(self) -> None:
        """For longer than its lease and its session in the group: a zombie afterwards."""
        if member := self._member():
            member.signal(signal.SIGSTOP)
            await asyncio.sleep(self.chance.uniform(2, 6))
            member.signal(signal.SIGCONT)

    async def terminate_backends(self) -> None:
        await self.site.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'oncebox %'"
        )

    async def restart_postgres(self) -> None:
        await asyncio.to_thread(self.postgres.stop, signal.SIGQUIT)
        await asyncio.sleep(self.chance.uniform(0, 5))
        await asyncio.to_thread(self.postgres.start)

    async def freeze_postgres(self) -> None:
        await asyncio.to_thread(self.postgres.pause)
        await asyncio.sleep(self.chance.uniform(1, 6))
        await asyncio.to_thread(self.postgres.resume)

    async def restart_kafka(self) -> None:
        await asyncio.to_thread(self.kafka.kill)
        await asyncio.to_thread(self.kafka.start)

    async def freeze_kafka(self) -> None:
        await asyncio.to_thread(self.kafka.pause)
        await asyncio.sleep(self.chance.uniform(1, 6))
        await asyncio.to_thread(self.kafka.resume)


async def test_nothing_is_lost_and_no_effect_is_doubled(fragile: Site, own_kafka: Stack, own_postgres: Stack) -> None:
    site, seed = fragile, int(os.environ.get("ONCEBOX_TEST_SEED", random.randrange(1_000_000)))
    print(f"seed {seed}")
    topics = {kind: site.topic(PARTITIONS) for kind in KINDS}
    results = site.topic(2, letters=False)
    await site.fetch("CREATE TABLE oncebox.effects (key text, fence bigint)")
    await Sampler.prepare(site)
    site.extra["VICTIM_TOPICS"] = ",".join(f"{kind}={topic}" for kind, topic in topics.items())
    site.extra["VICTIM_RESULTS"] = results
    site.extra |= {"VICTIM_SECONDS": "0.03", "ONCEBOX_CONCURRENCY": "6", "ONCEBOX_IN_FLIGHT": "32"}
    site.extra |= {"ONCEBOX_REQUEST_TIMEOUT": "3s", "ONCEBOX_CRASH_CAP": "100"}
    sent: dict[str, dict[Place, str]] = {}
    for kind, topic in topics.items():
        keys = [f"{kind}-{n}" for n in range(int(SECONDS * 40))]
        sent[kind] = send(site, topic, duplicated(keys, PARTITIONS, seed=seed, failing=0.05))
    samplers = {kind: Sampler(site, topic, PARTITIONS) for kind, topic in topics.items()}
    chaos = Chaos(site, own_kafka.server("kafka"), own_postgres.server("postgres"), random.Random(seed))
    chaos.members = [site.spawn() for _ in range(WORKERS)]
    for sampler in samplers.values():
        sampler.__enter__()
    try:
        await chaos.run()
        await site.drained(*topics.values(), within=SECONDS + 120)
        await site.quiet(60)
    finally:
        print("\n".join(chaos.log))
        for sampler in samplers.values():
            sampler.__exit__(None, None, None)
    for member in chaos.members:
        member.signal(signal.SIGTERM)
    for member in (*chaos.members, *chaos.leaving):
        assert await member.ended() == 0, member.tail()

    states = await site.states()
    assert states.keys() == {key for found in sent.values() for key in found.values()}, "nothing is lost"
    counts = Counter((key.split("-")[0], state) for key, state in states.items())
    print(counts)
    assert set(counts) <= {("external", "unknown"), *((kind, "completed") for kind in KINDS)}
    begun = starts(site)
    assert max(begun.values()) == 1, f"started twice: {[k for k, n in begun.items() if n > 1]}"
    assert all(begun[k] == 1 for k, state in states.items() if k.startswith("external") and state == "completed")
    effects = Counter(row["key"] for row in await site.fetch("SELECT key FROM oncebox.effects"))
    assert effects == dict.fromkeys(set(sent["transactional"].values()), 1), "exactly once"
    assert {w["key"] for w in site.witness() if w["what"] == "repeat"} == set(sent["repeatable"].values())
    for kind in KINDS:
        assert not await samplers[kind].premature(sent[kind]), kind
    bodies: dict[bytes | None, set[bytes | None]] = defaultdict(set)
    for seen in site.read(results):
        bodies[dict(seen.headers)["oncebox.key"]].add(seen.value)
    assert bodies.keys() == {k.encode() for k, s in states.items() if k.startswith("external") and s == "completed"}
    assert all(len(found) == 1 for found in bodies.values()), "byte-identical per key"
    refused = await site.fetch("SELECT 1 FROM oncebox.history h JOIN oncebox.entries e USING (id) WHERE e.kind <> 3")
    assert not refused, "a result was refused: a possible double effect"
    assert not [letter for topic in topics.values() for letter in site.dead_letters(topic)]
