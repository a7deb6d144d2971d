"""Rewound offsets do not repeat what was done and forgotten; what was never finished runs, whatever its age."""

import json
from collections import Counter

from confluent_kafka.admin import AdminClient
from pydantic import BaseModel

from tests.conftest import ConsumeAll, MakeTopic
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Registry
from worker.stack import Stack


class Message(BaseModel):
    """What the tests send."""

    id: str


def registry_for(topic: str, ran: Counter[str]) -> Registry:
    registry = Registry()

    @registry.handler(topic, scope="jobs", key="id", kind="repeatable")
    async def work(message: Message) -> None:
        ran[message.id] += 1

    return registry


async def test_a_position_finished_before_the_ttl_is_not_run_again(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll, stack: Stack
) -> None:
    name = topic()
    stack.create_topics({f"dlq.{name}": 1})
    ran: Counter[str] = Counter()
    bodies = [json.dumps({"id": f"k{n}"}).encode() for n in range(6)]
    site.produce(name, bodies[:4])
    async with site.worker(registry_for(name, ran), ONCEBOX_SAMPLE_EVERY="1s"):
        await site.drained(name)
        sampled = "SELECT 1 FROM oncebox.samples WHERE watermark = 4"
        await eventually(lambda: site.fetch(sampled), 20, "no sample of the watermark", every=0.1)
    # The TTL passes: entries are pruned, samples are old; two of the four entries are still there.
    await site.fetch("UPDATE oncebox.samples SET at = at - interval '31 days'")
    await site.fetch("DELETE FROM oncebox.entries WHERE key IN ('k0', 'k1')")
    site.produce(name, bodies[4:])
    site.put_group(name, {0: 0})
    await site.run(registry_for(name, ran))
    assert ran == Counter({f"k{n}": 1 for n in range(6)})
    letters = consume_all(f"dlq.{name}")
    assert [s.value for s in letters] == bodies[:2]
    assert {dict(s.headers)["oncebox.reason"] for s in letters} == {b"beyond_ttl"}


async def test_neither_are_those_in_line_behind_others(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll, stack: Stack
) -> None:
    name = topic()
    stack.create_topics({f"dlq.{name}": 1})
    ran: Counter[str] = Counter()
    site.produce(name, [Sent(b'{"id":"k%d"}' % n, key=b"one line") for n in range(6)])
    async with site.worker(registry_for(name, ran), ONCEBOX_SAMPLE_EVERY="1s"):
        await site.drained(name)
        sampled = "SELECT 1 FROM oncebox.samples WHERE watermark = 6"
        await eventually(lambda: site.fetch(sampled), 20, "no sample of the watermark", every=0.1)
    await site.fetch("UPDATE oncebox.samples SET at = at - interval '31 days'")
    await site.fetch("DELETE FROM oncebox.entries")
    site.put_group(name, {0: 0})
    await site.run(registry_for(name, ran))
    assert ran == Counter({f"k{n}": 1 for n in range(6)})
    assert {dict(s.headers)["oncebox.reason"] for s in consume_all(f"dlq.{name}")} == {b"beyond_ttl"}


async def test_without_committed_offsets_the_stored_watermark_is_the_place(site: Site, topic: MakeTopic) -> None:
    """Kafka forgets the offsets of a group that was away too long; the beginning would be a guess."""
    name = topic()
    ran: Counter[str] = Counter()
    site.produce(name, [json.dumps({"id": f"k{n}"}).encode() for n in range(3)])
    async with site.worker(registry_for(name, ran), ONCEBOX_SAMPLE_EVERY="1s"):
        await site.drained(name)
        sampled = "SELECT 1 FROM oncebox.samples WHERE watermark = 3"
        await eventually(lambda: site.fetch(sampled), 20, "no sample of the watermark", every=0.1)
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    admin.delete_consumer_groups([site.group])[site.group].result(10)
    await site.fetch("DELETE FROM oncebox.entries")
    site.produce(name, [b'{"id":"new"}'])
    await site.run(registry_for(name, ran))
    assert ran == Counter({"k0": 1, "k1": 1, "k2": 1, "new": 1})
