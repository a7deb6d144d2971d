"""Kafka transactions in the source topic: aborted ones never run, open ones wait, and their markers do not hold lag."""

import asyncio
from collections import Counter

import pytest
from confluent_kafka import Producer
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.waiting import eventually
from worker import Context, Registry

pytestmark = pytest.mark.stories


class Message(BaseModel):
    """What the tests send."""

    id: str


def transactional(site: Site, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    return producer


def registry_for(topic: str, ran: Counter[str]) -> Registry:
    registry = Registry()

    @registry.handler(topic, scope="payments", key="id")
    async def work(message: Message, context: Context) -> None:
        ran[context.key] += 1

    return registry


async def test_aborted_records_never_run_and_lag_reaches_zero_past_the_markers(site: Site) -> None:
    name = site.topic()
    producer = transactional(site, name)

    def write(prefix: str, *, commit: bool) -> None:
        producer.begin_transaction()
        for n in range(5):
            producer.produce(name, message(f"{prefix}{n}"))
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    ran: Counter[str] = Counter()
    async with site.worker(registry_for(name, ran)):
        for number in range(3):
            await asyncio.to_thread(write, f"aborted{number}-", commit=False)
            await asyncio.to_thread(write, f"committed{number}-", commit=True)
        await asyncio.to_thread(write, "last-", commit=False)
        await site.drained(name, within=20)
    assert ran == {f"committed{number}-{n}": 1 for number in range(3) for n in range(5)}
    assert not site.dead_letters(name)


async def test_an_open_transaction_holds_what_is_behind_it_until_it_ends(site: Site) -> None:
    name = site.topic()
    producer = transactional(site, name)
    ran: Counter[str] = Counter()
    async with site.worker(registry_for(name, ran)):
        site.produce(name, [message("before")])
        await asyncio.to_thread(producer.begin_transaction)
        producer.produce(name, message("inside"))
        assert await asyncio.to_thread(producer.flush, 30) == 0
        site.produce(name, [message("behind")])
        await eventually(lambda: ran["before"], 20)
        await site.drained(name, within=20)
        assert ran == {"before": 1}
        await asyncio.to_thread(producer.commit_transaction, 30)
        await eventually(lambda: len(ran) == 3, 20, "the end of the transaction was not noticed")
        await site.drained(name, within=20)
    assert ran == {"before": 1, "inside": 1, "behind": 1}
