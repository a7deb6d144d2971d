"""Transactions: what the handler wrote and the completion commit together, or neither does."""

import pytest

from tests.conformance.making import bring, claim_again, offer
from tests.conformance.stores import Store
from tests.ledger.offers import id_of, ok, released
from worker.rules.claims import Kind, State
from worker.rules.context import Transaction
from worker.rules.results import Result


async def test_the_effect_and_the_completion_commit_together(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.IN_PROGRESS, Kind.TRANSACTIONAL)

    async def body(transaction: Transaction) -> Result:
        await store.write(transaction, "effect")
        assert await store.written() == []
        assert await store.state("k") is State.IN_PROGRESS
        return ok(b"r")

    assert await ledger.transactions.run(id_of("k"), fence, body) == ok(b"r")
    assert await store.written() == ["effect"]
    entry = await store.entry("k")
    assert (entry.state, entry.result) == (State.COMPLETED, ok(b"r"))
    await ledger.finals.tidy()
    assert await store.open_claims() == {}


async def test_what_a_body_raises_rolls_back_and_leaves_the_claim(store: Store) -> None:
    ledger = await store.worker()
    fence = await bring(store, ledger, "k", State.IN_PROGRESS, Kind.TRANSACTIONAL)

    async def body(transaction: Transaction) -> Result:
        await store.write(transaction, "effect")
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await ledger.transactions.run(id_of("k"), fence, body)
    assert await store.written() == []
    entry = await store.entry("k")
    assert (entry.state, entry.fence, entry.attempts) == (State.IN_PROGRESS, fence, 0)


async def test_a_claim_that_was_superseded_rolls_back(store: Store) -> None:
    ledger, other = await store.worker(), await store.worker()
    fence = await bring(store, ledger, "k", State.IN_PROGRESS, Kind.TRANSACTIONAL)

    async def body(transaction: Transaction) -> Result:
        await store.write(transaction, "effect")
        await other.finals.release([released("k", fence)])
        return ok()

    assert await ledger.transactions.run(id_of("k"), fence, body) is None
    assert await store.written() == []
    assert await store.state("k") is State.FAILED_RETRYABLE
    won = await claim_again(other, offer(store, "k", Kind.TRANSACTIONAL))
    assert await ledger.transactions.run(id_of("k"), fence, body) is None
    assert (await store.entry("k")).fence == won["k"].fence
    assert await store.written() == []
