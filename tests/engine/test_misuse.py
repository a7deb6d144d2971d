"""The same key with another payload: never run, never shown the first one's result, whatever state the entry is in."""

import asyncio
import signal
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from tests.engine.load import message, starts
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Context, Effect, NotExecuted, Registry, Retries

FIRST, OTHER = message("k", amount=1), message("k", amount=2)


class Message(BaseModel):
    """What the tests send."""

    id: str
    amount: int


class Stage:
    """A handler that brings its entry into a state and keeps it there until it is let go."""

    def __init__(self, site: Site, state: str) -> None:
        self.topic, self.results = site.topic(2), site.topic(letters=False)
        self.registry = Registry()
        self.ran: Counter[int] = Counter()
        self.go = asyncio.Event()

        @self.registry.handler(
            self.topic, scope="payments", key="id", result_topic=self.results, retries=Retries(9, first="1s", most="1s")
        )
        async def work(message: Message, context: Context, effect: Effect) -> dict[str, Any]:
            self.ran[message.amount] += 1
            if state == "failed_retryable" and not self.go.is_set():
                raise NotExecuted("not yet")
            async with effect:
                if state == "in_progress":
                    await self.go.wait()
                if state == "unknown":
                    raise RuntimeError("nobody knows")
            return {"amount": message.amount}


@pytest.mark.parametrize("state", ["in_progress", "completed", "failed_retryable", "unknown"])
async def test_another_payload_is_refused_in_every_state(site: Site, state: str) -> None:
    stage = Stage(site, state)
    async with site.worker(stage.registry, ONCEBOX_HOLD="2s"):
        site.produce(stage.topic, [Sent(FIRST, partition=0)])

        async def reached() -> bool:
            return await site.states() == {"k": state}

        await eventually(reached, 20, f"never {state}", every=0.05)
        site.produce(stage.topic, [Sent(OTHER, partition=0), Sent(OTHER, partition=1), Sent(message("n", amount=3))])
        if state == "in_progress":
            # In the worker that runs the entry it waits for the end; meanwhile others go on.
            await eventually(lambda: stage.ran[3], 20, "a neighbour stands still")
            stage.go.set()
        await eventually(lambda: len(site.dead_letters(stage.topic)) == 2, 20, "no misuse", every=0.2)
        stage.go.set()
        await site.drained(stage.topic)
    assert stage.ran[2] == 0, "the other payload never runs"
    letters = site.dead_letters(stage.topic)
    assert [(letter.reason, letter.value) for letter in letters] == [("misuse", OTHER)] * 2
    for letter in letters:
        assert letter.about["oncebox.fingerprint"] != letter.about["oncebox.first-fingerprint"]
        assert letter.about["oncebox.key"] == b"k"
    answers = [seen.value for seen in site.read(stage.results) if seen.value != b'{"amount":3}']
    assert answers == ([] if state == "unknown" else [b'{"amount":1}']), "only the first payload is answered"


async def test_two_payloads_that_arrive_together_are_one_run_and_one_misuse(site: Site) -> None:
    stage = Stage(site, "completed")
    site.produce(stage.topic, [Sent(body, partition=p) for p in (0, 1) for body in (FIRST, OTHER)])
    async with site.worker(stage.registry):
        await site.drained(stage.topic)
    assert sorted(stage.ran.values()) == [1], "whoever was first, the other one never ran"
    (won,) = stage.ran
    assert {letter.value for letter in site.dead_letters(stage.topic)} == {OTHER if won == 1 else FIRST}
    assert len(site.dead_letters(stage.topic)) == 2
    assert len(site.read(stage.results)) == 2


@pytest.mark.stories
async def test_another_process_refuses_at_once_what_runs_here(site: Site) -> None:
    name = site.topic(2)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    workers = [site.spawn(), site.spawn()]
    for worker in workers:
        await worker.says("partitions_assigned")
    site.produce(name, [Sent(message("k", seconds=4, amount=1), partition=0)])
    await eventually(lambda: starts(site), 20, "never started")
    site.produce(name, [Sent(message("k", seconds=4, amount=2), partition=1)])
    await eventually(lambda: site.dead_letters(name), 3, f"no misuse\n{site.tails()}", every=0.1)
    assert [w["what"] for w in site.witness()] == ["start"], "while the first one still runs"
    await site.drained(name)
    assert [letter.reason for letter in site.dead_letters(name)] == ["misuse"]
    assert [w["what"] for w in site.witness()] == ["start", "end"]
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
