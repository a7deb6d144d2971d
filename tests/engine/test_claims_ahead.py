"""Two claims may be ahead of their handlers, behind one that runs; whatever becomes of that one, order is kept."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Context, Effect, NotExecuted, Registry, Reject, Retries
from worker.engine.pipeline import Pipeline
from worker.rules.lanes import Lane
from worker.rules.record import Record

LINE = ["m0", "m1", "m2", "m3", "m4"]


class Message(BaseModel):
    """What the tests send."""

    id: str


class Gated:
    """A registry whose handler notes each start; that of `m0` waits for a gate, and then ends as `ends` says."""

    def __init__(self, topic: str, ends: str = "well", **options: Any) -> None:
        self.registry = Registry()
        self.gate = asyncio.Event()
        self.started: list[tuple[str, int]] = []

        @self.registry.handler(topic, scope="payments", key="id", retries=Retries(5, first="20ms"), **options)
        async def work(message: Message, context: Context, effect: Effect) -> None:
            self.started.append((message.id, context.attempt))
            if message.id != "m0":
                return
            await self.gate.wait()
            if ends == "rejected":
                raise Reject("no")
            if ends == "retried" and context.attempt < 3:
                raise NotExecuted
            async with effect:
                if ends == "in doubt":
                    raise RuntimeError

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.started]


def line(names: list[str] = LINE, key: bytes = b"line") -> list[Sent]:
    return [Sent(message(name), key=key) for name in names]


async def claimed(site: Site, *names: str) -> None:
    """Wait until exactly these are in progress."""

    async def so() -> bool:
        return await in_progress(site) == set(names)

    await eventually(so, 10, f"not just {names} were claimed")


async def in_progress(site: Site) -> set[str]:
    return {name for name, state in (await site.states()).items() if state == "in_progress"}


async def test_two_claims_are_ahead_of_their_handlers_and_never_more(site: Site) -> None:
    name = site.topic()
    gated = Gated(name)
    site.produce(name, line())
    async with site.worker(gated.registry):
        await claimed(site, "m0", "m1", "m2")
        site.produce(name, line([f"other{n}" for n in range(50)], key=b"other"))

        async def others_are_done() -> bool:
            return Counter((await site.states()).values())["completed"] == 50

        await eventually(others_are_done, 10, "the other line stands still")
        assert await in_progress(site) == {"m0", "m1", "m2"}
        assert [one for one in gated.names if one in LINE] == ["m0"]
        gated.gate.set()
        await site.drained(name)
    assert [one for one in gated.names if one in LINE] == LINE


async def test_where_room_is_scarce_only_one_claim_is_ahead(site: Site) -> None:
    name = site.topic()
    gated = Gated(name)
    site.produce(name, line())
    async with site.worker(gated.registry, ONCEBOX_IN_FLIGHT="3"):
        await claimed(site, "m0", "m1")
        gated.gate.set()
        await site.drained(name)
    assert gated.names == LINE


@pytest.mark.parametrize(
    ("ends", "states"),
    [
        ("rejected", {"completed": 5}),
        ("retried", {"completed": 5}),
        ("in doubt", {"completed": 4, "unknown": 1}),
    ],
)
async def test_those_behind_keep_their_order_however_the_one_in_front_ends(
    site: Site, ends: str, states: dict[str, int]
) -> None:
    name = site.topic()
    gated = Gated(name, ends)
    site.produce(name, line())
    async with site.worker(gated.registry):
        await claimed(site, "m0", "m1", "m2")
        gated.gate.set()
        await site.drained(name)
    firsts = [("m0", 1), ("m0", 2), ("m0", 3)] if ends == "retried" else [("m0", 1)]
    assert gated.started == [*firsts, *((one, 1) for one in LINE[1:])], "what was given back counts as no attempt"
    assert Counter((await site.states()).values()) == states


async def test_claims_behind_one_that_waits_for_its_retry_are_given_back(site: Site) -> None:
    name = site.topic()
    registry = Registry()
    tried: list[tuple[str, int]] = []
    gate = asyncio.Event()

    @registry.handler(name, scope="payments", key="id", retries=Retries(5, first="2s", most="2s"))
    async def work(message: Message, context: Context, effect: Effect) -> None:
        tried.append((message.id, context.attempt))
        if (message.id, context.attempt) == ("m0", 1):
            await gate.wait()
            raise NotExecuted

    site.produce(name, line())
    async with site.worker(registry):
        await claimed(site, "m0", "m1", "m2")
        gate.set()
        await claimed(site)
        assert tried == [("m0", 1)]
        states = await site.states()
        assert Counter(states.values()) == {"failed_retryable": 3}
        await site.drained(name)
    assert tried == [("m0", 1), ("m0", 2), *((one, 1) for one in LINE[1:])]


async def test_a_stop_gives_back_both_claims_ahead(site: Site) -> None:
    name = site.topic()
    gated = Gated(name)
    site.produce(name, line())
    async with site.worker(gated.registry):
        await claimed(site, "m0", "m1", "m2")
        asyncio.get_running_loop().call_later(0.2, gated.gate.set)
    assert await site.states() == {"m0": "completed", "m1": "failed_retryable", "m2": "failed_retryable"}
    await site.run(gated.registry)
    assert gated.started == [(one, 1) for one in LINE]


async def test_a_revoked_partition_gives_back_both_claims_ahead(site: Site) -> None:
    name = site.topic(2)
    pair = [[Sent(message(f"{p}-{one}"), key=b"line", partition=p) for one in LINE] for p in range(2)]
    for records in pair:
        site.produce(name, records)
    # Each partition's first message waits, whoever reads it.
    waits = Registry()
    gate = asyncio.Event()
    ran: list[str] = []

    @waits.handler(name, scope="payments", key="id")
    async def work(message: Message, effect: Effect) -> None:
        ran.append(message.id)
        if message.id.endswith("m0"):
            await gate.wait()

    async with site.worker(waits, ONCEBOX_DRAIN="1s"):
        await claimed(site, *(f"{p}-m{n}" for p in range(2) for n in range(3)))
        async with site.worker(waits):
            # The rebalance takes both partitions away; what runs goes on with its claim, the next owner waits for it.
            await claimed(site, "0-m0", "1-m0")
            gate.set()
            await site.drained(name)
    assert Counter(ran) == {f"{p}-{one}": 1 for p in range(2) for one in LINE}
    for p in range(2):
        assert [one for one in ran if one.startswith(f"{p}-")] == [f"{p}-{one}" for one in LINE]


async def test_what_one_fetch_delivers_is_taken_in_portions(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    name = site.topic()
    gated = Gated(name)
    taken: list[int] = []
    take = Pipeline.take

    def watched(pipeline: Pipeline, lane: Lane, records: list[Record], position: int, *, more: bool) -> None:
        taken.append(len(records))
        take(pipeline, lane, records, position, more=more)

    monkeypatch.setattr(Pipeline, "take", watched)
    site.produce(name, [Sent(message(f"k{n}"), key=str(n).encode()) for n in range(1000)])
    await site.run(gated.registry)
    assert sum(taken) == 1000
    assert max(taken) <= 64, "decoding more at once would hold up every handler"
