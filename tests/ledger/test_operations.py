"""Operations: a start that would silently change what a key means is refused, and changes nothing."""

import asyncio
from typing import Any

import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.offers import offers
from worker import Registry, field
from worker.errors import ConfigError
from worker.ledger.ledger import PostgresLedger
from worker.rules.handlers import Handler


def handlers(*operations: str) -> list[Handler]:
    registry = Registry()
    for operation in operations:

        async def handle(message: dict[str, Any]) -> None:
            return None

        registry.handler(f"topic.{operation}", scope="webhooks", key=field("id"), operation=operation)(handle)
    return registry.handlers


async def register(ledger: PostgresLedger, *operations: str, group: str = "g", identity: str = "v1") -> dict[str, int]:
    found = handlers(*operations)
    identities = {handler.name: identity for handler in found}
    numbers, _ = await ledger.register(found, group=group, identities=identities)
    return numbers


async def test_numbers_stay_the_same_over_starts_and_groups(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    first = await register(ledger, "a", "b")
    assert await register(ledger, "b", "a") == first
    assert await register(ledger, "a", "b", group="other") == first
    groups = await ledger_schema.fetch("SELECT groups FROM oncebox.operations")
    assert [sorted(row[0]) for row in groups] == [["g", "other"]] * 2


async def test_another_identity_is_refused_while_entries_live(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    numbers = await register(ledger, "a")
    await ledger.claims.claim(offers("k", operation=numbers["webhooks/a"]))
    with pytest.raises(ConfigError, match="another way") as refused:
        await register(ledger, "a", identity="v2")
    assert "operation=" in str(refused.value), "the way out is in the message"
    assert await ledger_schema.value("SELECT identity FROM oncebox.operations") == "v1"
    await ledger_schema.execute("DELETE FROM oncebox.entries")
    assert await register(ledger, "a", identity="v2") == numbers
    assert await ledger_schema.value("SELECT identity FROM oncebox.operations") == "v2"


async def test_dropping_an_operation_with_live_entries_is_refused_for_its_own_group_only(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    numbers = await register(ledger, "empty", "kept", "live")
    await ledger.claims.claim(offers("k", operation=numbers["webhooks/live"]))
    with pytest.raises(ConfigError, match="webhooks/live"):
        await register(ledger, "kept")
    still = await ledger_schema.fetch("SELECT operation FROM oncebox.operations WHERE 'g' = ANY(groups)")
    assert {row[0] for row in still} == {"empty", "kept", "live"}, "a refused start changes nothing"
    await register(ledger, "kept", group="other")
    await ledger_schema.execute("DELETE FROM oncebox.entries")
    await register(ledger, "kept")
    still = await ledger_schema.fetch("SELECT operation FROM oncebox.operations WHERE 'g' = ANY(groups)")
    assert {row[0] for row in still} == {"kept"}


async def test_workers_that_start_together_get_the_same_numbers(open_ledger: OpenLedger) -> None:
    workers = [await open_ledger() for _ in range(3)]
    names = [f"o{n}" for n in range(20)]
    answers = await asyncio.gather(
        *(register(each, *(names if n % 2 else names[::-1])) for n, each in enumerate(workers))
    )
    assert answers[0] == answers[1] == answers[2]
