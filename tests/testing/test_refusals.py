"""Records that are refused before any claim: each leaves a dead letter with its reason, and no entry."""

from typing import Any

import pytest

from tests.testing.shop import charge, left, notify, raw, strict
from worker.testing import Box
from worker.testing.outbox import text

REFUSALS: list[tuple[str, Any, Any, dict[str, str]]] = [
    ("missing_key", charge, {"amount_cents": 5}, {}),
    ("missing_key", charge, {"delivery_id": None}, {}),
    ("missing_key", raw, b"x", {}),
    ("invalid_key", charge, {"delivery_id": ""}, {}),
    ("invalid_key", charge, {"delivery_id": "k" * 513}, {}),
    ("invalid_key", strict, {"delivery_id": "K9"}, {}),
    ("undecodable", charge, b"{not json", {}),
    ("undecodable", strict, b"\xff\xfe", {}),
    ("invalid_payload", charge, {"delivery_id": "d", "amount_cents": "many"}, {}),
    ("invalid_payload", charge, None, {}),
    ("invalid_payload", strict, [1, 2], {}),
    ("missing_tenant", notify, {"delivery_id": "n"}, {}),
    ("no_handler", left, {"delivery_id": "1"}, {"type": "up"}),
    ("no_handler", left, {"delivery_id": "1"}, {}),
]


@pytest.mark.parametrize(("reason", "to", "payload", "headers"), REFUSALS)
async def test_a_record_that_cannot_be_handled_is_dead_lettered(
    box: Box, reason: str, to: Any, payload: Any, headers: dict[str, str]
) -> None:
    refused = await box.deliver(to, payload, headers=headers, kafka_key="kafka")
    assert (refused.outcome, refused.reason, refused.runs, refused.fence) == ("dead_lettered", reason, 0, None)
    assert refused.result is None
    assert box.tables.entries == {}
    [letter] = box.dead_letters
    assert letter is refused.dead_letter
    assert (letter.topic, letter.key, letter.value) == (f"dlq.{to.topics[0]}", b"kafka", refused.record.value)
    assert text(letter, "oncebox.reason") == reason.encode()
    assert await box.restart() == []


async def test_a_header_given_twice_with_different_values_is_refused(box: Box) -> None:
    headers = [("Idempotency-Key", "one"), ("idempotency-key", "two")]
    refused = await box.deliver(charge, {"delivery_id": "d"}, headers=headers)
    assert (refused.outcome, refused.reason) == ("dead_lettered", "invalid_key")


async def test_a_refusal_names_no_value(box: Box) -> None:
    refused = await box.deliver(charge, {"delivery_id": "d", "amount_cents": "topsecret"})
    assert refused.detail is not None
    assert "amount_cents" in refused.detail
    assert "topsecret" not in refused.detail


async def test_a_dead_letter_that_cannot_be_written_is_tried_again_and_then_parked(box: Box) -> None:
    box.outbox.unwritable.add("dlq.charges")
    refused = await box.deliver(charge, {"amount_cents": 5})
    assert refused.reason == "unwritable:missing_key"
    assert (box.parked, box.dead_letters) == ([refused.record], [])
    box.outbox.unwritable.clear()
    refused = await box.deliver(charge, {"amount_cents": 6})
    assert (refused.outcome, refused.reason) == ("dead_lettered", "missing_key")
