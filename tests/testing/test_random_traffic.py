"""Random records, failures, deaths and lost sessions: nothing is done twice, nothing is left undone, order holds."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from worker import Context, Effect, NotExecuted, Registry, Reject, Retries, Scope, Transaction
from worker.rules.claims import State
from worker.testing import Box, Delivered

ENDS = ("return", "return", "return", "fail", "reject", "inside", "not executed", "hang")
POINTS = ("after_claim", "before_effect", "inside_effect", "after_effect", "before_completion", "before_commit")


class Traffic:
    """Handlers that behave as the dice say, and what they did."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.acted: Counter[str] = Counter()
        self.starts: list[tuple[Any, int]] = []  # Kafka key and offset of every run in line
        self.registry = Registry()
        first = self.dice.choice(["1s", "20s", "2m"])
        self.registry.add(Scope("random", ttl="7d", retries=Retries(3, first=first, most="5m")))
        how: Any = {"scope": "random", "key": "id", "timeout": "10s", "concurrency": self.dice.choice([None, 1, 2])}
        self.registry.handler("external", **how)(self.external)
        self.registry.handler("transactional", kind="transactional", **how)(self.transactional)

    async def external(self, message: dict[str, Any], context: Context, effect: Effect) -> str:
        end = await self.begin(context)
        async with effect:
            if end == "not executed":
                raise NotExecuted
            self.acted[context.key] += 1
            await self.finish(end)
        return context.key

    async def transactional(self, message: dict[str, Any], context: Context, transaction: Transaction) -> str:
        end = await self.begin(context)
        await transaction.execute("INSERT", context.key)
        await self.finish(end)
        return context.key

    async def begin(self, context: Context) -> str:
        if not context.out_of_order:
            record = context.record
            self.starts.append(((record.topic, record.partition, record.key), record.offset))
        end = self.dice.choice(ENDS)
        await asyncio.sleep(self.dice.choice([0, 0.01, 3]))
        match end:
            case "fail":
                raise ValueError
            case "reject":
                raise Reject
        return end

    async def finish(self, end: str) -> None:
        await asyncio.sleep(self.dice.choice([0, 0.01, 1]))
        match end:
            case "inside":
                raise ConnectionError
            case "hang":
                await asyncio.sleep(100)

    async def burst(self, box: Box, *, dies: bool) -> list[Delivered]:
        dice = self.dice
        count = dice.choice([1, 5, 20])
        crashing = dice.randrange(count) if dies else None
        sent = [
            box.deliver(
                dice.choice(["external", "transactional"]),
                {"id": f"i{dice.randrange(8)}", "amount": int(dice.random() < 0.05)},
                kafka_key=dice.choice([None, "a", "b"]),
                partition=dice.choice([0, 1]),
                crash=dice.choice(POINTS) if number == crashing else None,  # type: ignore[arg-type]
            )
            for number in range(count)
        ]
        answers = await asyncio.gather(*sent, return_exceptions=True)
        unexpected = [a for a in answers if isinstance(a, BaseException) and "was not reached" not in str(a)]
        if unexpected:
            raise unexpected[0]
        return [a for a in answers if isinstance(a, Delivered)]


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_each_key_acts_once_and_each_record_has_an_outcome(seed: int) -> None:
    print(f"seed {seed}")
    traffic = Traffic(seed)
    dice = traffic.dice
    settings: dict[str, Any] = {
        "lease": "3s",
        "hold": dice.choice(["2s", "30s"]),
        "in_flight": dice.choice([1, 3, 512]),
    }
    delivered = []
    async with Box(traffic.registry, **settings) as box:
        for _ in range(3):
            delivered += await traffic.burst(box, dies=dice.random() < 0.4)
            # A death over one record may have been planned for a record that was redelivered.
            while box.dead:
                await box.restart()
            if dice.random() < 0.3:
                await box.end_session()
        await box.advance("30m")
        for one in delivered:
            now = box.now(one)
            assert now.outcome is not None
            assert now.outcome != "parked" or now.state == "unknown", now
        assert box.uncommitted == []
        held = Counter(place[0] for place in box.tables.parked)
        for entry in box.tables.entries.values():
            assert entry.state is not State.IN_PROGRESS
            assert entry.held == held[entry.id]
        assert box.tables.open_claims == {}
        assert set(traffic.acted.values()) <= {1}
        assert set(Counter(s.arguments for s in box.database.committed).values()) <= {1}


@pytest.mark.parametrize("seed", range(100, 104))
async def test_records_of_one_kafka_key_start_in_the_order_of_their_offsets(seed: int) -> None:
    print(f"seed {seed}")
    traffic = Traffic(seed)
    async with Box(traffic.registry, in_flight=traffic.dice.choice([1, 3, 512])) as box:
        for _ in range(3):
            await traffic.burst(box, dies=False)
    last: dict[Any, int] = {}
    for strand, offset in traffic.starts:
        if strand[2] is not None:
            assert offset >= last.get(strand, -1)
            last[strand] = offset
