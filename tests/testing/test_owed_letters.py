"""A letter or result that could not be written is owed: paid when its topic is back, once, without running anything."""

from typing import Any

import pytest

from worker import Context, Effect, Registry, Scope
from worker.testing import Box


def shop(ran: list[str]) -> tuple[Registry, Any]:
    registry = Registry()
    registry.add(Scope("shop", ttl="7d"))

    @registry.handler("charges", scope="shop", key="id", when={"header:type": "charge"}, result_topic="receipts")
    async def charge(message: dict[str, Any], context: Context, effect: Effect) -> str:
        async with effect:
            ran.append(context.key)
            if message.get("breaks"):
                raise ConnectionError
        return "x" * int(message.get("size", 1))

    @registry.handler("charges", scope="shop", key="id", when={"header:type": "refund"})
    async def refund(message: dict[str, Any]) -> None: ...

    return registry, charge


CHARGE = {"type": "charge"}


@pytest.mark.parametrize(
    ("payload", "headers", "reason"),
    [
        ({"id": "k"}, {"type": "other"}, "no_handler"),
        ({"no": "key"}, CHARGE, "missing_key"),
        (b"{", CHARGE, "undecodable"),
    ],
)
async def test_a_refused_record_gets_its_letter_when_the_topic_is_back(
    payload: Any, headers: dict[str, str], reason: str
) -> None:
    ran: list[str] = []
    registry, _ = shop(ran)
    async with Box(registry) as box:
        box.outbox.unwritable.add("dlq.charges")
        first = await box.deliver("charges", payload, headers=headers)
        assert (first.outcome, first.reason) == ("parked", f"unwritable:{reason}")
        detail = [row.detail for row in box.tables.parked.values()]
        await box.advance("5m")
        assert (len(box.parked), box.dead_letters, box.uncommitted) == (1, [], [])
        box.outbox.unwritable.clear()
        await box.advance("5m")
        [letter] = box.dead_letters
        about = dict(letter.headers)
        assert (about["oncebox.reason"], letter.value) == (reason.encode(), first.record.value)
        assert [(about["__dlq.errors.message"] or b"").decode()] == detail
        assert (box.parked, box.now(first).outcome, ran) == ([], "dead_lettered", [])


async def test_a_misused_key_that_was_forgotten_meanwhile_still_ends_in_its_letter() -> None:
    ran: list[str] = []
    registry, charge = shop(ran)
    async with Box(registry) as box:
        await box.deliver(charge, {"id": "k"}, headers=CHARGE)
        box.outbox.unwritable.add("dlq.charges")
        misused = await box.deliver(charge, {"id": "k", "other": 1}, headers=CHARGE)
        assert misused.reason == "unwritable:misuse"
        box.tables.entries.clear()  # pruned
        box.outbox.unwritable.clear()
        await box.advance("5m")
        assert [dict(letter.headers)["oncebox.reason"] for letter in box.dead_letters] == [b"misuse"]
        assert (ran, box.parked, box.now(misused).outcome) == (["k"], [], "misuse")


async def test_a_misused_keys_letter_still_shows_both_fingerprints() -> None:
    ran: list[str] = []
    registry, charge = shop(ran)
    async with Box(registry) as box:
        await box.deliver(charge, {"id": "k"}, headers=CHARGE)
        box.outbox.unwritable.add("dlq.charges")
        await box.deliver(charge, {"id": "k", "other": 1}, headers=CHARGE)
        box.outbox.unwritable.clear()
        await box.advance("5m")
        about = dict(box.dead_letters[0].headers)
        assert about["oncebox.fingerprint"] != about["oncebox.first-fingerprint"]


async def test_an_owed_result_keeps_its_entry_from_being_forgotten() -> None:
    ran: list[str] = []
    registry, charge = shop(ran)
    async with Box(registry) as box:
        box.outbox.unwritable.add("receipts")
        first = await box.deliver(charge, {"id": "k"}, headers=CHARGE)
        assert (first.outcome, first.reason) == ("executed", "unwritable:result")
        entry = box.entry(charge, key="k")
        assert entry is not None
        assert (entry.state, entry.held) == ("completed", 1), "forgotten, it would be claimed and run again"
        await box.advance("10m")
        box.outbox.unwritable.clear()
        await box.advance("5m")
        assert [out.value for out in box.outbox.results] == [b"x"]
        entry = box.entry(charge, key="k")
        assert entry is not None
        assert (entry.held, ran, box.parked) == (0, ["k"], [])


async def test_a_parked_records_result_that_is_too_large_stays_for_people() -> None:
    ran: list[str] = []
    registry, charge = shop(ran)
    async with Box(registry) as box:
        box.outbox.unwritable.add("receipts")
        first = await box.deliver(charge, {"id": "k", "size": 1000}, headers=CHARGE)
        box.outbox.unwritable.clear()
        box.outbox.largest = 10
        await box.advance("10m")
        [row] = box.tables.parked.values()
        assert (row.reason, row.due_at, ran) == ("too_large:result", None, ["k"])
        assert box.now(first).outcome == "parked"
        assert len(box.outbox.results) == 1, "the cut one, once"
