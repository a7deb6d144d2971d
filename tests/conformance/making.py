"""Bringing an entry into a state, by the calls that lead there."""

from typing import Any

from tests.conformance.stores import Store
from tests.ledger.offers import Offer, done, doubted, failed, id_of
from worker.rules.claims import Kind, State
from worker.rules.entries import Won


def offer(store: Store, key: str, kind: Kind = Kind.EXTERNAL, **more: Any) -> Offer:
    return Offer(key, store.plan(kind, **more))


async def claim(ledger: Any, *offers: Offer) -> dict[str, Won]:
    """Claim these and say which were won."""
    claimed = await ledger.claims.claim(offers)
    return {o.key: won for o in offers if (won := claimed.winner(o.id)) is not None}


async def claim_again(ledger: Any, *offers: Offer) -> dict[str, Won]:
    """Claim these again; a refusal may only mean that the block of fences was too old, so ask twice."""
    won = await ledger.claims.claim_again(offers)
    rest = [o for o in offers if o.id not in won]
    if rest:
        won |= await ledger.claims.claim_again(rest)
    return {o.key: won[o.id] for o in offers if o.id in won}


async def bring(store: Store, ledger: Any, key: str, state: State | None, kind: Kind = Kind.EXTERNAL) -> int:
    """Bring an entry into a state; its fence."""
    if state is None:
        return 0
    fence = (await claim(ledger, offer(store, key, kind)))[key].fence
    match state:
        case State.COMPLETED:
            assert await ledger.finals.complete([done(key, fence)]) == set()
        case State.FAILED_RETRYABLE:
            assert await ledger.finals.fail([failed(key, fence)]) == set()
        case State.UNKNOWN:
            assert await ledger.finals.doubt([doubted(key, fence)]) == set()
    assert await store.state(key) is state
    return fence


async def row(ledger: Any, key: str) -> Any:
    return (await ledger.claims.look_up([id_of(key)]))[id_of(key)]
