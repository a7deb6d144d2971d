"""Whoever asks by `reply_to` gets an answer for every final outcome, from topics the scope allows."""

import json
from typing import Any

from pydantic import BaseModel

from tests.conftest import ConsumeAll, MakeTopic
from tests.engine.site import Site
from tests.stack.client import Sent
from worker import Effect, Registry, Reject, Scope
from worker.stack import Stack


class Message(BaseModel):
    """What the tests send."""

    id: str
    amount: int = 1


def registry_for(topic: str, allowed: str) -> Registry:
    registry = Registry()
    registry.add(Scope("asked", ttl="1d", reply_to=frozenset({allowed})))

    @registry.handler(topic, scope="asked", key="id")
    async def charge(message: Message, effect: Effect) -> dict[str, Any]:
        if message.amount < 0:
            raise Reject("negative", code="amount")
        async with effect:
            if message.amount == 99:
                raise ConnectionError("reply lost")
        return {"amount": message.amount}

    return registry


def asking(replies: str, correlation: str, **body: Any) -> Sent:
    headers = [("reply_to", replies.encode()), ("correlation-id", correlation.encode())]
    return Sent(json.dumps(body).encode(), headers=headers)


async def test_every_final_outcome_is_answered(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll, stack: Stack
) -> None:
    name, replies, forbidden = topic(), topic(), topic()
    stack.create_topics({f"dlq.{name}": 1})
    site.produce(
        name,
        [
            asking(replies, "ok", id="a"),
            asking(replies, "again", id="a"),
            asking(replies, "rejected", id="b", amount=-1),
            asking(replies, "misuse", id="a", amount=2),
            asking(replies, "no key", amount=3, id=""),
            asking(replies, "doubt", id="c", amount=99),
            asking(forbidden, "forbidden", id="d"),
        ],
    )
    await site.run(registry_for(name, replies))
    answers = {dict(s.headers)["correlation-id"]: s for s in consume_all(replies)}
    status = {c: dict(s.headers)["oncebox.reply-status"] for c, s in answers.items()}
    assert status == {
        b"ok": b"200",
        b"again": b"200",
        b"rejected": b"200",
        b"misuse": b"422",
        b"no key": b"400",
        b"doubt": b"202",
    }
    assert answers[b"ok"].value == answers[b"again"].value == b'{"amount":1}'
    assert dict(answers[b"again"].headers)["Idempotent-Replayed"] == b"true"
    assert dict(answers[b"rejected"].headers)["oncebox.status"] == b"rejected"
    assert answers[b"misuse"].value is not None
    assert b'"amount":1' not in answers[b"misuse"].value
    assert consume_all(forbidden) == []


async def test_a_result_too_large_for_its_topics_is_cut_and_says_so(
    site: Site, topic: MakeTopic, consume_all: ConsumeAll, stack: Stack
) -> None:
    name, replies, results = topic(), topic(max_message_bytes=2000), topic(max_message_bytes=2000)
    stack.create_topics({f"dlq.{name}": 1})
    registry = Registry()
    registry.add(Scope("asked", ttl="1d", reply_to=frozenset({replies})))

    @registry.handler(name, scope="asked", key="id", result_topic=results)
    async def answer(message: Message) -> str:
        return "x" * message.amount

    site.produce(name, [asking(replies, "large", id="a", amount=5000), asking(replies, "small", id="b", amount=5)])
    await site.run(registry)
    for published in consume_all(replies), consume_all(results):
        large, small = sorted(published, key=lambda seen: seen.value or b"")
        headers = dict(large.headers)
        assert (large.value, headers["correlation-id"]) == (b"", b"large")
        assert (headers["oncebox.status"], headers["oncebox.reason"]) == (b"unstorable", b"too_large")
        assert headers["oncebox.cut-bytes"] == b"5000"
        assert headers.get("oncebox.reply-status", b"500") == b"500", "a cut result is no 200"
        assert (small.value, dict(small.headers)["oncebox.status"]) == (b"xxxxx", b"ok")
    assert (await site.states()) == {"a": "completed", "b": "completed"}
    assert {row["reason"] for row in await site.fetch("SELECT reason FROM oncebox.parked")} == {"too_large:result"}
