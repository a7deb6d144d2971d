"""What a handler gives back is stored once and replayed unchanged."""

from typing import Any

import pytest
from pydantic import BaseModel

from tests.testing.shop import answer, charge, gateway
from worker import Registry, Reject, Scope
from worker.testing import Box
from worker.testing.outbox import text


class Receipt(BaseModel):
    number: int


async def test_a_reject_is_a_result_and_is_replayed(box: Box) -> None:
    first = await box.deliver(charge, {"delivery_id": "d", "amount_cents": 0})
    again = await box.redeliver(first)
    assert (first.outcome, again.outcome) == ("rejected", "replayed")
    assert (first.status, first.code) == (again.status, again.code) == ("rejected", "amount")
    assert first.result == again.result == {"code": "amount", "message": "amount must be positive"}
    assert gateway.charged == []


async def test_a_reject_inside_a_transaction_rolls_it_back_and_is_kept() -> None:
    from worker import Transaction

    shop = Registry()

    @shop.handler("t", scope="jobs", key="id", kind="transactional")
    async def refuse(message: dict[str, Any], transaction: Transaction) -> None:
        await transaction.execute("INSERT INTO t VALUES (1)")
        raise Reject("no", code="no")

    async with Box(shop) as box:
        first = await box.deliver(refuse, {"id": 1})
        assert (first.outcome, first.code, box.database.committed) == ("rejected", "no", [])
        assert (await box.redeliver(first)).outcome == "replayed"
        assert box.effects.count(refuse) == 0


@pytest.mark.parametrize(
    ("given", "raw", "decoded"),
    [
        (None, None, None),
        ({"b": 1, "a": [1.5]}, b'{"b":1,"a":[1.5]}', {"b": 1, "a": [1.5]}),
        ("text", b"text", "text"),
        (b"\x00\xff", b"\x00\xff", b"\x00\xff"),
        (Receipt(number=3), b'{"number":3}', {"number": 3}),
    ],
)
async def test_every_form_of_result_is_replayed_byte_for_byte(
    box: Box, given: Any, raw: bytes | None, decoded: Any
) -> None:
    gateway.act = lambda: given
    first = await box.deliver(answer, {"delivery_id": "d"})
    gateway.act = lambda: "another"
    again = await box.redeliver(first)
    assert (first.outcome, again.outcome) == ("executed", "replayed")
    assert first.raw == again.raw == raw
    assert first.result == again.result == decoded


async def test_results_are_published_and_replays_say_so(box: Box) -> None:
    gateway.act = lambda: "answer"
    first = await box.deliver(answer, {"delivery_id": "d"}, headers={"correlation-id": "c"}, kafka_key="k")
    again = await box.redeliver(first)
    assert [(o.topic, o.key, o.value) for o in box.outbox.results] == [("answered", b"k", b"answer")] * 2
    assert first.published is not None
    assert again.published is not None
    assert text(first.published, "Idempotent-Replayed") is None
    assert text(again.published, "Idempotent-Replayed") == b"true"
    assert text(again.published, "correlation-id") == b"c"
    assert text(again.published, "oncebox.fence") == str(first.fence).encode()


async def test_whoever_asked_by_reply_to_gets_an_answer_for_every_outcome() -> None:
    shop = Registry()
    shop.add(Scope("asked", ttl="1d", reply_to=frozenset({"replies"})))

    @shop.handler("t", scope="asked", key="id", kind="repeatable")
    async def tell(message: dict[str, Any]) -> str:
        return "told"

    async with Box(shop) as box:
        replied = []
        for payload in ({"id": 1}, {"id": 1}, {"id": 1, "other": 1}, {"no": "key"}):
            delivered = await box.deliver(tell, payload, headers={"reply_to": "replies"})
            assert delivered.reply is not None
            replied.append((str(delivered.outcome), text(delivered.reply, "oncebox.reply-status")))
        assert replied == [("executed", b"200"), ("replayed", b"200"), ("misuse", b"422"), ("dead_lettered", b"400")]
        assert len(box.outbox.replies) == 4
        assert (await box.deliver(tell, {"id": 2}, headers={"reply_to": "elsewhere"})).reply is None


@pytest.mark.parametrize("given", [object(), "x" * 300_000, "\ud800"])
async def test_a_result_that_cannot_be_stored_completes_the_entry(box: Box, given: Any) -> None:
    gateway.act = lambda: given
    first = await box.deliver(answer, {"delivery_id": "d"})
    assert (first.outcome, first.status) == ("executed", "unstorable")
    again = await box.redeliver(first)
    assert (again.outcome, again.status, again.raw) == ("replayed", "unstorable", first.raw)
    assert len(gateway.started) == 1


@pytest.mark.parametrize(("kept", "raw"), [("nothing", None), ("digest", 64)])
async def test_a_scope_may_keep_less_than_the_result(kept: Any, raw: int | None) -> None:
    shop = Registry()
    shop.add(Scope("discreet", ttl="1d", results=kept))

    @shop.handler("t", scope="discreet", key="id", kind="repeatable")
    async def tell(message: dict[str, Any]) -> str:
        return "secret"

    async with Box(shop) as box:
        first = await box.deliver(tell, {"id": 1})
        assert first.outcome == "executed"
        assert (None if first.raw is None else len(first.raw)) == raw
        assert (await box.redeliver(first)).raw == first.raw
