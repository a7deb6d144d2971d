"""The Redis filter saves work and changes no outcome: absent, warm, flushed or full of forgeries."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import redis
from pydantic import BaseModel

from tests.conftest import ConsumeAll, MakeTopic
from tests.engine.site import Site
from tests.stack.client import Sent
from worker import Registry
from worker.filter.filter import Filter
from worker.rules.entries import Row

KEYS = 1500


class Message(BaseModel):
    """What the tests send."""

    id: str
    amount: int = 1


def registry_for(topic: str, results: str, ran: Counter[str]) -> Registry:
    registry = Registry()

    @registry.handler(topic, scope="payments", key="id", result_topic=results)
    async def charge(message: Message) -> dict[str, Any]:
        ran[message.id] += 1
        return {"receipt": message.id * 3}

    return registry


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many duplicates the filter answered."""
    counted: Counter[str] = Counter()
    look_up = Filter.look_up

    async def counting(self: Filter, wanted: Mapping[bytes, bytes | None]) -> dict[bytes, Row]:
        rows = await look_up(self, wanted)
        counted["hits"] += len(rows)
        return rows

    monkeypatch.setattr(Filter, "look_up", counting)
    return counted


async def test_it_answers_duplicates_with_the_stored_bytes_and_forgeries_with_nothing(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll, redis_url: str, hits: Counter[str]
) -> None:
    name, results = topic(4), topic(4)
    ran: Counter[str] = Counter()
    registry = registry_for(name, results, ran)
    bodies = [json.dumps({"id": f"k{n}"}).encode() for n in range(KEYS)]
    store: Any = redis.Redis.from_url(redis_url)  # its own types allow for a client that awaits
    before = set(store.keys("oncebox:*"))

    async def deliver() -> None:
        site.produce(name, [Sent(body, partition=n % 4) for n, body in enumerate(bodies)])
        await site.run(registry, REDIS_URL=redis_url)

    await deliver()
    assert hits["hits"] == 0, "unique traffic pays nothing"
    assert not set(store.keys("oncebox:*")) - before
    await deliver()  # answered by Postgres, remembered
    await deliver()
    warm = hits["hits"]
    assert warm > 0, "a warm filter answers"
    mine = set(store.keys("oncebox:*")) - before
    for key in mine:
        store.set(key, store.get(key)[:-1] + b"\x00")
    await deliver()
    assert hits["hits"] - warm < KEYS / 10, "forged entries answer nothing"
    store.delete(*mine)
    await deliver()
    assert ran == Counter({f"k{n}": 1 for n in range(KEYS)})
    seen = consume_all(results)
    assert len(seen) == 5 * KEYS
    by_key: dict[bytes, set[bytes | None]] = {}
    for one in seen:
        by_key.setdefault(dict(one.headers)["oncebox.key"] or b"", set()).add(one.value)
    assert all(len(values) == 1 for values in by_key.values()), "byte-identical, whoever answered"


async def test_misuse_is_never_judged_by_the_filter(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll, redis_url: str, stack: Any, hits: Counter[str]
) -> None:
    name, results = topic(), topic()
    stack.create_topics({f"dlq.{name}": 1})
    ran: Counter[str] = Counter()
    registry = registry_for(name, results, ran)
    right = [json.dumps({"id": f"k{n}"}).encode() for n in range(200)]
    wrong = [json.dumps({"id": f"k{n}", "amount": 2}).encode() for n in range(200)]
    for bodies in (right, right, right, wrong):
        site.produce(name, bodies)
        await site.run(registry, REDIS_URL=redis_url)
    assert ran == Counter({f"k{n}": 1 for n in range(200)})
    letters = consume_all(f"dlq.{name}")
    assert len(letters) == 200
    assert {dict(letter.headers)["oncebox.reason"] for letter in letters} == {b"misuse"}


async def test_without_redis_everything_is_only_slower(site: Site, topic: MakeTopic, consume_all: ConsumeAll) -> None:
    name, results = topic(), topic()
    ran: Counter[str] = Counter()
    registry = registry_for(name, results, ran)
    for _ in range(2):
        site.produce(name, [json.dumps({"id": f"k{n}"}).encode() for n in range(300)])
        await site.run(registry, REDIS_URL="redis://127.0.0.1:1/0")
    assert ran == Counter({f"k{n}": 1 for n in range(300)})
    assert len(consume_all(results)) == 600
