"""TTL runs on log time: an outage expires nothing its backlog needs, and no old position runs again."""

import asyncio
import time
from collections import Counter
from datetime import timedelta

import asyncpg
import pytest
from confluent_kafka import KafkaException, TopicPartition
from pydantic import BaseModel

from tests.engine.site import Site
from tests.shifting import let_time_pass
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Registry, Scope
from worker.app.sweeping import Swept, sweep_once

DAY = 86_400_000
pytestmark = pytest.mark.stories


class Message(BaseModel):
    """What the tests send."""

    id: str


def registry_for(topic: str, ran: Counter[str], ttl: str = "7d") -> Registry:
    registry = Registry()
    registry.add(Scope("kept", ttl=ttl))

    @registry.handler(topic, scope="kept", key="id")
    async def work(message: Message) -> None:
        ran[message.id] += 1

    return registry


def message(key: str) -> bytes:
    return b'{"id": "%s"}' % key.encode()


async def pass_time(site: Site, passed: timedelta) -> None:
    connection = await asyncpg.connect(site.database_url)
    try:
        await let_time_pass(connection, site.schema, passed)
    finally:
        await connection.close()


async def prune(site: Site) -> Swept:
    return await sweep_once(site.settings(), None, stop=asyncio.Event(), prune_only=True)


async def catch_up(site: Site, registry: Registry, topic: str, **changes: str) -> None:
    """Run a worker until everything there is in the one partition is finished and sampled."""
    (end,) = await eventually(lambda: asyncio.to_thread(_end, site, topic), 20, "the topic has no leader")
    reached = (
        "SELECT 1 FROM oncebox.samples WHERE topic = $1 AND watermark >= $2 AND end_offset = watermark"
        " AND at > clock_timestamp() - interval '1 hour'"
    )
    async with site.worker(registry, ONCEBOX_SAMPLE_EVERY="1s", **changes):
        await eventually(lambda: site.fetch(reached, topic, end), 40, "never caught up and sampled", every=0.1)


def _end(site: Site, topic: str) -> tuple[int] | None:
    try:
        return (int(site.reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]),)
    except KafkaException:
        return None  # a topic that was just created


async def test_a_nine_day_outage_expires_nothing_that_its_backlog_needs(site: Site) -> None:
    name, ran = site.topic(retention_ms=-1), Counter[str]()
    before = [f"before {n}" for n in range(10)]
    site.produce(name, [message(key) for key in before])
    await catch_up(site, registry_for(name, ran), name)
    await pass_time(site, timedelta(days=9))

    now = round(time.time() * 1000)
    during = [f"during {n}" for n in range(10)]
    backlog = [Sent(message(key), timestamp_ms=now - (9 - n % 9) * DAY) for n, key in enumerate(before + during)]
    # A record from a clock that is right must not pass for the age of the others.
    backlog.insert(3, Sent(message("stamped now"), timestamp_ms=now))
    site.produce(name, backlog)
    swept = await prune(site)
    assert [(p.entries, len(p.holds)) for p in swept.pruned] == [(0, 1)], "nobody has read the backlog yet"
    assert await site.count("entries") == 10

    # Pruning goes on while the backlog is read.
    await catch_up(site, registry_for(name, ran), name, ONCEBOX_PRUNE_EVERY="1s")
    assert ran == Counter([*before, *during, "stamped now"])
    assert site.dead_letters(name) == []
    await prune(site)
    assert set(await site.states()) == {*during, "stamped now"}, "what was executed nine days ago has expired"


async def test_neither_rewound_offsets_nor_a_new_group_run_what_was_finished_and_pruned(site: Site) -> None:
    name, ran = site.topic(retention_ms=-1), Counter[str]()
    registry = registry_for(name, ran, ttl="1h")
    for week in range(2):
        site.produce(name, [message(f"{week}-{n}") for n in range(5)])
        await catch_up(site, registry, name)
        await pass_time(site, timedelta(days=15))
    site.produce(name, [message("fresh")])
    await catch_up(site, registry, name)
    await prune(site)
    assert set(await site.states()) == {"fresh"}
    done = Counter(ran)
    assert set(done.values()) == {1}
    assert len(done) == 11

    await asyncio.to_thread(site.put_group, name, {0: 0})
    await site.run(registry)
    assert ran == done
    assert [letter.reason for letter in site.dead_letters(name)] == ["beyond_ttl"] * 10

    await site.run(registry, ONCEBOX_GROUP=f"{site.group}-renamed")
    assert ran == done
    assert [letter.reason for letter in site.dead_letters(name)] == ["beyond_ttl"] * 20


async def test_what_was_pruned_the_moment_a_stuck_record_was_finished_is_not_run_again(site: Site) -> None:
    """Its position was finished only now, not a TTL ago; its entry has gone all the same."""
    name, ran = site.topic(retention_ms=-1), Counter[str]()
    stuck = asyncio.Event()
    registry = Registry()
    registry.add(Scope("kept", ttl="1h"))

    @registry.handler(name, scope="kept", key="id", kind="repeatable")
    async def work(message: Message) -> None:
        ran[message.id] += 1
        if message.id == "stuck":
            await stuck.wait()

    site.produce(name, [message("stuck"), message("behind")])
    async with site.worker(registry, ONCEBOX_SAMPLE_EVERY="1s", ONCEBOX_DRAIN="0s"):
        await eventually(lambda: ran["behind"], 20, "it waits for another key")
    await pass_time(site, timedelta(hours=5))
    swept = await prune(site)
    assert [p.entries for p in swept.pruned] == [0], "the watermark stands at the stuck record"
    stuck.set()
    await catch_up(site, registry, name)
    assert (await site.states())["behind"] == "completed"
    await prune(site)
    assert "behind" not in await site.states()
    await asyncio.to_thread(site.put_group, name, {0: 0})
    await site.run(registry)
    assert ran["behind"] == 1
