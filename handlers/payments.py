"""External: the effect is in somebody else's system, so a crash in the middle leaves the entry in doubt."""

from pydantic import BaseModel

from worker import Context, Effect, Registry, Reject, Verdict, field, header

from .gateway import accounts, gateway

registry = Registry()


class Charge(BaseModel):
    """What the webhook says."""

    delivery_id: str
    amount_cents: int


@registry.handler("payments.charges", scope="payments", key=header("Idempotency-Key") | field("delivery_id"))
async def charge(message: Charge, context: Context, effect: Effect) -> dict[str, str]:
    """Charge the account once per key, and answer with the receipt."""
    if message.amount_cents <= 0:
        raise Reject("amount must be positive", code="amount")
    account = await accounts.find(message)
    async with effect:
        receipt = await gateway.charge(account, message.amount_cents, idempotency_key=context.effect_key())
    return {"receipt": receipt}


@charge.reconciler
async def look_up(context: Context) -> Verdict:
    """Ask the gateway what became of a charge that is in doubt."""
    receipt = await gateway.find(context.effect_key())
    return Verdict.executed({"receipt": receipt}) if receipt else Verdict.not_executed()
