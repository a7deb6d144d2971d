"""The promise on the happy path: one run per key, every redelivery answered from the stored bytes."""

import json
from collections import Counter
from typing import Any

from pydantic import BaseModel

from tests.conftest import ConsumeAll, MakeTopic
from tests.engine.site import Site
from tests.stack.client import Sent
from worker import Context, Registry, Reject, field, header


class Charge(BaseModel):
    """A webhook."""

    delivery_id: str
    amount: int


def body(key: str, amount: int = 1) -> bytes:
    return json.dumps({"delivery_id": key, "amount": amount}).encode()


def registry_for(topic: str, ran: Counter[str], **options: Any) -> Registry:
    registry = Registry()

    @registry.handler(topic, scope="payments", key=header("Idempotency-Key") | field("delivery_id"), **options)
    async def charge(message: Charge, context: Context) -> dict[str, Any]:
        ran[context.key] += 1
        if message.amount < 0:
            raise Reject("negative", code="amount")
        return {"receipt": context.effect_key(), "run": ran[context.key]}

    return registry


async def test_each_key_runs_once_and_duplicates_are_replayed(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    ran: Counter[str] = Counter()
    keys = [f"k{n}" for n in range(300)]
    site.produce(name, [Sent(body(key), key=f"p{n}".encode()) for n, key in enumerate(keys * 3)])
    await site.run(registry_for(name, ran))
    assert ran == Counter(keys)
    assert await site.states() == dict.fromkeys(keys, "completed")
    assert await site.lag(name) == 0


async def test_the_key_comes_from_the_header_first_quoted_or_bare(site: Site, topic: MakeTopic) -> None:
    name = topic()
    ran: Counter[str] = Counter()
    quoted = Sent(body("ignored"), headers=[("idempotency-key", b'"k 1"')])
    bare = Sent(body("ignored"), headers=[("Idempotency-Key", b"k 1")])
    site.produce(name, [quoted, bare, body("from field")])
    await site.run(registry_for(name, ran))
    assert ran == Counter(["k 1", "from field"])


async def test_a_replay_gives_the_stored_bytes_with_the_first_fence(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll
) -> None:
    name, results = topic(2), topic()
    ran: Counter[str] = Counter()
    registry = registry_for(name, ran, result_topic=results)
    site.produce(name, [Sent(body("k"), partition=0)])
    await site.run(registry)
    site.produce(name, [Sent(body("k"), partition=1, headers=[("correlation-id", b"c1")])])
    await site.run(registry)
    first, again = consume_all(results)
    assert (
        first.value
        == again.value
        == json.dumps({"receipt": json.loads(first.value or b"")["receipt"], "run": 1}, separators=(",", ":")).encode()
    )
    first_headers, again_headers = dict(first.headers), dict(again.headers)
    assert "Idempotent-Replayed" not in first_headers
    assert again_headers["Idempotent-Replayed"] == b"true"
    assert first_headers["oncebox.fence"] == again_headers["oncebox.fence"]
    assert again_headers["correlation-id"] == b"c1"
    assert again_headers["oncebox.source"] == f"{name}/1@0".encode()


async def test_a_rejection_is_a_result(site: Site, topic: MakeTopic, consume_all: ConsumeAll) -> None:
    name, results = topic(), topic()
    ran: Counter[str] = Counter()
    site.produce(name, [body("k", -1), body("k", -1)])
    await site.run(registry_for(name, ran, result_topic=results))
    assert ran == Counter(["k"])
    seen = consume_all(results)
    assert [dict(s.headers)["oncebox.status"] for s in seen] == [b"rejected", b"rejected"]
    assert json.loads(seen[0].value or b"") == {"code": "amount", "message": "negative"}


async def test_another_payload_under_a_used_key_never_runs_and_never_sees_the_result(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll, stack: Any
) -> None:
    name, results = topic(), topic()
    stack.create_topics({f"dlq.{name}": 1})
    ran: Counter[str] = Counter()
    site.produce(name, [body("k", 1), body("k", 2), body("k", 1)])
    await site.run(registry_for(name, ran, result_topic=results))
    assert ran == Counter(["k"])
    assert len(consume_all(results)) == 2
    (letter,) = consume_all(f"dlq.{name}")
    headers = dict(letter.headers)
    assert letter.value == body("k", 2)
    assert headers["oncebox.reason"] == b"misuse"
    assert headers["oncebox.fingerprint"] != headers["oncebox.first-fingerprint"]
    assert headers["__dlq.errors.offset"] == b"1"
