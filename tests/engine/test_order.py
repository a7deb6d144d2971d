"""Per Kafka key handlers start in the order of their offsets, also across retries, and nothing stands still for it."""

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.stack.client import Sent
from worker import Context, Effect, Registry, Retries

KEYS = 20
SHORT = Retries(5, first="20ms", most="50ms")
# Failures of many classes, each proof that nothing was executed: equal ones would open the handler's circuit.
PROOFS = tuple(type(f"Proof{n}", (Exception,), {}) for n in range(20))


class Message(BaseModel):
    """What the tests send."""

    id: str
    fails: int = 0


class Orderly:
    """A registry whose handler waits a little, fails as often as its message says, and writes down when it ran."""

    def __init__(self, topic: str, seed: int, **options: Any) -> None:
        self.registry = Registry()
        self.tried: list[tuple[int, bytes | None, int]] = []
        self.done: list[tuple[int, bytes | None, int]] = []
        chance = random.Random(seed)

        @self.registry.handler(topic, scope="payments", key="id", retries=SHORT, not_executed=PROOFS, **options)
        async def work(message: Message, context: Context, effect: Effect) -> None:
            record = context.record
            place = (record.partition, record.key, record.offset)
            self.tried.append(place)
            if context.attempt <= message.fails:
                raise chance.choice(PROOFS)
            await asyncio.sleep(chance.uniform(0, 0.005))
            async with effect:
                self.done.append(place)

    def violations(self, *, by_key: bool) -> list[tuple[int, int]]:
        """Offsets that started although a later one of their line had started before."""
        lines: dict[Any, int] = defaultdict(lambda: -1)
        found = []
        for partition, key, offset in self.tried:
            line = (partition, key) if by_key else partition
            if offset < lines[line]:
                found.append((lines[line], offset))
            lines[line] = max(lines[line], offset)
        return found


def records(count: int, seed: int, *, failing: float) -> list[Sent]:
    chance = random.Random(seed)
    return [
        Sent(message(f"m{n}", fails=int(chance.random() < failing)), key=f"key-{chance.randrange(KEYS)}".encode())
        for n in range(count)
    ]


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("failing", [0.0, 0.05], ids=["smooth", "with retries"])
async def test_handlers_start_in_the_order_that_was_asked_for(site: Site, order: str, failing: float) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    name, count = site.topic(2), 150 if order == "partition" else 800
    orderly = Orderly(name, seed, order=order)
    site.produce(name, records(count, seed, failing=failing))
    async with site.worker(orderly.registry):
        await site.drained(name)
    assert len(orderly.done) == len(set(orderly.done)) == count
    match order:
        case "key":
            assert not orderly.violations(by_key=True)
            assert orderly.violations(by_key=False), "other keys run side by side"
        case "partition":
            assert not orderly.violations(by_key=False)
        case "none":
            assert not failing or orderly.violations(by_key=True), "nobody waits for one that is tried again"


async def test_the_check_notices_a_worker_without_order(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.engine.strands.Strands.enter", lambda strands, item: True)
    name = site.topic()
    orderly = Orderly(name, 1)
    site.produce(name, records(300, 1, failing=0.1))
    async with site.worker(orderly.registry):
        await site.drained(name)
    assert orderly.violations(by_key=True)


async def test_records_without_a_kafka_key_have_no_order(site: Site) -> None:
    name = site.topic()
    orderly = Orderly(name, 1)
    fails = [message(f"m{n}", fails=int(n == 0)) for n in range(50)]
    site.produce(name, fails)
    async with site.worker(orderly.registry):
        await site.drained(name)
    assert orderly.done[-1][2] == 0, "the first one was tried again after the others"
    assert len(orderly.done) == 50


@pytest.mark.parametrize("room", [1, 2, 3, 4, 9])
async def test_claims_ahead_never_take_the_room_that_the_first_of_a_line_needs(site: Site, room: int) -> None:
    name = site.topic()
    orderly = Orderly(name, 1)
    lines = [Sent(message(f"k{k}-{n}", fails=int(n == 0)), key=f"k{k}".encode()) for n in range(5) for k in range(8)]
    site.produce(name, lines)
    async with site.worker(orderly.registry, ONCEBOX_IN_FLIGHT=str(room)):
        await site.drained(name, within=15)
    assert len(orderly.done) == 40
    assert not orderly.violations(by_key=True)


async def test_lines_that_carry_each_others_keys_do_not_wait_for_each_other_for_ever(site: Site) -> None:
    """a: X Y, b: Y X, many times over, each message failing once: every cycle would be a standstill."""
    name = site.topic()
    orderly = Orderly(name, 1)
    lines = []
    for n in range(40):
        pair = [message(f"x{n}", fails=1), message(f"y{n}", fails=1)]
        lines += [Sent(pair[0], key=b"a"), Sent(pair[1], key=b"b"), Sent(pair[1], key=b"a"), Sent(pair[0], key=b"b")]
    site.produce(name, lines)
    async with site.worker(orderly.registry):
        await site.drained(name, within=20)
    states = await site.states()
    assert len(states) == 80
    assert set(states.values()) == {"completed"}
    assert len(orderly.done) == len(states)
