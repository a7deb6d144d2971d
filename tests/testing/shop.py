"""Handlers of every kind, and the fake systems they call."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from worker import Context, Effect, Registry, Reject, Retries, Scope, Transaction, Verdict, field, header

registry = Registry()
registry.add(Scope("patient", ttl="7d", retries=Retries(3, first="5m", most="1h")))
registry.add(Scope("strict", ttl="1d", key_pattern="[a-z]+"))
registry.add(Scope("secretive", ttl="1d", private_keys=True))


class Charge(BaseModel):
    delivery_id: str | None = None
    amount_cents: int = 5


class Gateway:
    """Does what a test tells it: `behave` is called in the handler before the effect, `act` inside it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.charged: list[str] = []
        self.started: list[Any] = []
        self.busy = asyncio.Event()
        self.behave: Callable[[], Any] = lambda: None
        self.act: Callable[[], Any] = lambda: None

    async def prepare(self, what: Any) -> None:
        self.started.append(what)
        self.busy.set()
        await _done(self.behave())

    async def charge(self, token: str) -> str:
        await _done(self.act())
        self.charged.append(token)
        return f"receipt-{len(self.charged)}"


async def _done(answer: Any) -> None:
    if inspect.isawaitable(answer):
        await answer


gateway = Gateway()


@registry.handler("charges", scope="payments", key=header("Idempotency-Key") | field("delivery_id"))
async def charge(message: Charge, context: Context, effect: Effect) -> dict[str, str]:
    if message.amount_cents <= 0:
        raise Reject("amount must be positive", code="amount")
    await gateway.prepare(message.delivery_id)
    async with effect:
        receipt = await gateway.charge(context.effect_key())
    return {"receipt": receipt}


@charge.reconciler
async def look_up(context: Context) -> Verdict:
    if context.effect_key() in gateway.charged:
        return Verdict.executed({"receipt": "found"})
    return Verdict.not_executed()


@registry.handler("orders", scope="jobs", key="delivery_id", kind="transactional")
async def order(message: Charge, transaction: Transaction) -> str:
    await gateway.prepare(message.delivery_id)
    await transaction.execute("INSERT INTO orders (id) VALUES ($1)", message.delivery_id)
    return "ordered"


@registry.handler("indexing", scope="jobs", key="delivery_id", kind="repeatable")
async def index(message: Charge, context: Context) -> None:
    await gateway.prepare(message.delivery_id)
    await gateway.charge(context.effect_key())


@registry.handler("notices", scope="webhooks", key="delivery_id", tenant="shop")
async def notify(message: dict[str, Any], context: Context) -> str:
    """External without an effect block: the whole handler is one."""
    await gateway.charge(context.effect_key())
    return f"told {context.tenant}"


@registry.handler("slow", scope="patient", key="delivery_id", timeout="10m")
async def slow(message: Charge, context: Context, effect: Effect) -> str:
    await gateway.prepare((message.delivery_id, context.attempt, context.out_of_order))
    async with effect:
        return await gateway.charge(context.effect_key())


@registry.handler("quick", scope="jobs", key="delivery_id", kind="repeatable", timeout="2s", retries=2)
async def quick(message: Charge) -> str:
    await gateway.prepare(message.delivery_id)
    return "quick"


@registry.handler("threads", scope="jobs", key="delivery_id", kind="repeatable", retries=2)
def plain(message: Charge, context: Context) -> str:
    gateway.started.append(message.delivery_id)
    answer = gateway.behave()
    gateway.charged.append(context.effect_key())
    return str(answer)


@registry.handler("answers", scope="webhooks", key="delivery_id", kind="repeatable", result_topic="answered")
async def answer(message: Charge) -> Any:
    await gateway.prepare(message.delivery_id)
    return gateway.act()


@registry.handler("strict", scope="strict", key="delivery_id", kind="repeatable")
async def strict(message: dict[str, Any]) -> None: ...


@registry.handler("secrets", scope="secretive", key="delivery_id", kind="repeatable")
async def secret(message: dict[str, Any], context: Context) -> str:
    return context.key


@registry.handler("routed", scope="jobs", key="delivery_id", kind="repeatable", when={"header:type": "left"})
async def left(message: dict[str, Any]) -> str:
    return "left"


@registry.handler("routed", scope="jobs", key="delivery_id", kind="repeatable", when={"header:type": "right"})
async def right(message: dict[str, Any]) -> str:
    return "right"


@registry.handler("bytes", scope="jobs", key=header("Idempotency-Key"), kind="repeatable")
async def raw(message: bytes) -> bytes:
    return message[::-1]
