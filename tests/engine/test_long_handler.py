"""A handler that runs very long: its duplicates are parked and answered later, and nobody else waits for it."""

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
from worker import Context, Effect, Registry

pytestmark = pytest.mark.stories
HOLD = {"ONCEBOX_HOLD": "500ms"}


class Message(BaseModel):
    """What the tests send."""

    id: str


async def test_a_duplicate_of_what_runs_here_is_parked_after_hold_and_answered_in_the_end(site: Site) -> None:
    name, results = site.topic(2), site.topic(letters=False)
    registry, ran, go = Registry(), Counter[str](), asyncio.Event()

    @registry.handler(name, scope="payments", key="id", result_topic=results)
    async def work(message: Message, context: Context, effect: Effect) -> dict[str, Any]:
        ran[message.id] += 1
        async with effect:
            if message.id == "long":
                await go.wait()
        return {"id": message.id, "run": ran[message.id]}

    async with site.worker(registry, **HOLD):
        site.produce(name, [Sent(message("long"), key=b"a", partition=0)])
        await eventually(lambda: ran["long"], 20)
        others = [Sent(message(f"p{p}-{n}"), key=b"b", partition=p) for n in range(5) for p in (0, 1)]
        site.produce(name, [Sent(message("long"), key=b"b", partition=1), *others])
        await eventually(lambda: site.committed_offsets(name).get(1) == 6, 20, "a partition stands still", every=0.1)
        await eventually(lambda: len(ran) == 11, 20, "other keys stand still")
        assert site.committed_offsets(name)[0] == 0, "never past the one that runs"
        (parked,) = await site.fetch("SELECT reason, value FROM oncebox.parked")
        assert (parked["reason"], parked["value"]) == ("hold", message("long"))

        async def due() -> Any:
            (row,) = await site.fetch("SELECT due_at FROM oncebox.parked")
            return row["due_at"]

        for _ in range(2):
            before = await due()

            async def put_off(before: Any = before) -> bool:
                return bool(await due() > before)

            await eventually(put_off, 20, "it was not brought back, found waiting, and put off again", every=0.1)
        go.set()
        await site.drained(name)

        async def nothing_parked() -> bool:
            return await site.count("parked") == 0

        await eventually(nothing_parked, 20, "the duplicate was never answered", every=0.1)
    assert max(ran.values()) == 1
    answers = [seen for seen in site.read(results) if b'"long"' in (seen.value or b"")]
    assert [seen.value for seen in answers] == [b'{"id":"long","run":1}'] * 2
    assert [dict(seen.headers).get("Idempotent-Replayed") for seen in answers] == [None, b"true"]
    assert not site.dead_letters(name)
    rows = await site.fetch("SELECT held FROM oncebox.entries WHERE held <> 0")
    assert not rows, "nothing is held back from pruning any more"


async def test_a_duplicate_of_what_runs_in_another_process_is_parked_and_answered_in_the_end(site: Site) -> None:
    name, results = site.topic(2), site.topic(letters=False)
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_RESULTS": results, **HOLD}
    workers = [site.spawn(), site.spawn()]
    for worker in workers:
        await worker.says("partitions_assigned")
    site.produce(name, [Sent(message("long", seconds=4), partition=0)])
    await eventually(lambda: starts(site), 20, "never started")
    site.produce(name, [Sent(message("long", seconds=4), partition=1), Sent(message("short"), partition=1)])
    await eventually(lambda: site.committed_offsets(name).get(1) == 2, 20, "a partition stands still", every=0.1)
    assert [w["what"] for w in site.witness() if w["key"] == "long"] == ["start"], "while it still runs"
    await eventually(lambda: len(site.read(results)) == 3, 20, "not all were answered", every=0.2)
    await site.drained(name)
    assert starts(site) == {"long": 1, "short": 1}
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
    assert await site.count("parked") == 0
