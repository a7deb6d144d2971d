"""Reconcilers are asked with the context of the entry in doubt."""

from typing import Any

import pytest

from tests.testing.shop import charge, gateway
from worker import Context, NotExecuted, Registry, Verdict
from worker.errors import UsageError
from worker.testing import Box


@pytest.mark.parametrize(("point", "word"), [("inside_effect", "not_executed"), ("after_effect", "executed")])
async def test_a_reconciler_finds_out_what_the_dead_process_did(box: Box, point: Any, word: str) -> None:
    await box.deliver(charge, {"delivery_id": "d"}, crash=point)
    assert (await box.reconcile(charge, key="d")).word == word
    await box.restart()
    assert (await box.reconcile(charge, key="d")).word == word
    entry = box.entry(charge, key="d")
    assert entry is not None
    assert entry.state == "unknown"


async def test_a_reconciler_sees_the_key_tenant_fence_and_record_of_the_entry() -> None:
    shop = Registry()
    seen: list[Any] = []

    @shop.handler("t", scope="payments", key="id", tenant="shop")
    async def pay(message: dict[str, Any], context: Context) -> None:
        seen.append((context.effect_key("a"), context.fence, context.record, context.key, context.tenant))
        raise ConnectionError

    @pay.reconciler
    async def ask(context: Context) -> Verdict:
        seen.append((context.effect_key("a"), context.fence, context.record, context.key, context.tenant))
        return Verdict.unknown()

    async with Box(shop) as box:
        delivered = await box.deliver(pay, {"id": "p", "shop": "s"})
        assert (delivered.outcome, delivered.reason) == ("parked", "unknown")
        assert await box.reconcile(pay, key="p", tenant="s") == Verdict.unknown()
        assert seen[0] == seen[1]
        with pytest.raises(UsageError, match="not in doubt"):
            await box.reconcile(pay, key="p", tenant="t")


async def test_an_entry_that_provably_did_nothing_is_not_in_doubt(box: Box) -> None:
    def refuse() -> None:
        gateway.act = lambda: None
        raise NotExecuted("connection refused")

    gateway.act = refuse
    delivered = await box.deliver(charge, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.attempts) == ("executed", 1)
    assert box.effects.count(charge, key="d") == 2
    assert len(gateway.charged) == 1
