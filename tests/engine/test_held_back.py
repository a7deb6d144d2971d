"""An open circuit holds a handler's records instead of pouring the topic into its dead letters."""

import json
from collections import Counter

import pytest
from pydantic import BaseModel

from tests.conftest import MakeTopic
from tests.engine.site import Site
from tests.waiting import eventually
from worker import NotExecuted, Registry, Retries
from worker.engine.holding import Holding
from worker.engine.items import Item


class Message(BaseModel):
    """What the tests send."""

    id: str


async def test_records_of_a_failing_handler_are_held_and_run_when_it_recovers(site: Site, topic: MakeTopic) -> None:
    failing, healthy = topic(), topic()
    registry = Registry()
    ran: Counter[str] = Counter()
    broken = True

    @registry.handler(failing, scope="payments", key="id", retries=Retries(50, first="10ms", most="20ms"))
    async def charge(message: Message) -> None:
        ran["tried"] += 1
        if broken:
            raise NotExecuted("gateway is down")
        ran[message.id] += 1

    @registry.handler(healthy, scope="jobs", key="id")
    async def other(message: Message) -> None:
        ran["healthy"] += 1

    site.produce(failing, [json.dumps({"id": f"k{n}"}).encode() for n in range(50)])
    async with site.worker(registry):
        await eventually(lambda: ran["tried"] >= 10, 20, "never tried")
        await eventually(lambda: site.lag(failing), 10, "lag unknown")
        tried = ran["tried"]
        site.produce(healthy, [json.dumps({"id": f"h{n}"}).encode() for n in range(20)])
        await eventually(lambda: ran["healthy"] == 20, 20, "another handler must not be held")
        assert ran["tried"] < tried + 50, "the circuit did not open"
        broken = False
        await site.drained(failing, healthy)
    assert all(ran[f"k{n}"] == 1 for n in range(50))


async def test_records_that_need_no_run_do_not_keep_an_open_circuit_open(site: Site) -> None:
    """Of what was held, the first are duplicates: each is answered, and the next one may try at once."""
    name, ran, registry = site.topic(), Counter[str](), Registry()
    broken = False

    @registry.handler(name, scope="payments", key="id", retries=Retries(1), timeout="30s")
    async def charge(message: Message) -> None:
        if broken:
            raise NotExecuted("gateway is down")
        ran[message.id] += 1

    done = [json.dumps({"id": f"done{n}"}).encode() for n in range(5)]
    site.produce(name, done)
    async with site.worker(registry):
        await site.drained(name)
        broken = True
        site.produce(name, [json.dumps({"id": f"failing{n}"}).encode() for n in range(10)])
        await eventually(lambda: len(site.dead_letters(name)) == 10, 20, "nothing failed", every=0.2)
        broken = False
        site.produce(name, [*done, b'{"id":"fine"}'])
        await site.drained(name, within=20)
    assert ran == {"fine": 1, **{f"done{n}": 1 for n in range(5)}}


async def test_a_parked_record_is_held_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    name, registry, held = site.topic(), Registry(), Counter[int]()
    take = Holding.take

    def counting(self: Holding, item: Item) -> None:
        if item.parked is not None:
            held[item.offset] += 1
        take(self, item)

    monkeypatch.setattr(Holding, "take", counting)

    @registry.handler(name, scope="payments", key="id", retries=Retries(9, first="2s", most="2s"))
    async def charge(message: Message) -> None:
        raise NotExecuted("gateway is down")

    async def parked() -> bool:
        return await site.count("parked") == 3

    site.produce(name, [json.dumps({"id": f"parked{n}"}).encode() for n in range(3)])
    async with site.worker(registry, ONCEBOX_HOLD="200ms"):
        await eventually(parked, 10, "not parked", every=0.05)
        site.produce(name, [json.dumps({"id": f"opens the circuit {n}"}).encode() for n in range(10)])
        await eventually(lambda: len(held) == 3, 10, "the parked records did not come back")
        with pytest.raises(AssertionError, match="not within"):
            await eventually(lambda: max(held.values()) > 1, 2)
