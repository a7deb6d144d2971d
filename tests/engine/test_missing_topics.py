"""The dead-letter or result topic is missing: nothing is skipped; what is owed is kept, and everything else goes on."""

from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.waiting import eventually
from worker import Context, Registry
from worker.stack.topics import create

pytestmark = pytest.mark.stories


class Message(BaseModel):
    """What the tests send."""

    id: str


def registry_for(ran: Counter[str], *topics: str, results: str | None = None) -> Registry:
    registry = Registry()

    @registry.handler(topics, scope="payments", key="id", result_topic=results)
    async def work(message: Message, context: Context) -> dict[str, Any]:
        ran[context.key] += 1
        return {"id": message.id}

    return registry


def create_topic(site: Site, name: str) -> None:
    create({"bootstrap.servers": site.bootstrap}, {name: 1}, config={}, exist_ok=False)


async def test_without_a_dead_letter_topic_the_record_is_parked_after_hold(site: Site, notices: list[str]) -> None:
    name, ran = site.topic(letters=False), Counter[str]()
    async with site.worker(registry_for(ran, name), ONCEBOX_HOLD="1s"):
        site.produce(name, [b"bad", message("k1"), message("k2")])
        await eventually(lambda: len(ran) == 2, 20, "the neighbours stand still")
        await eventually(lambda: "letter_not_written" in notices, 20, "nobody was told")
        assert site.committed_offsets(name)[0] == 0, "held, not skipped"
        await site.drained(name, within=20)
        (parked,) = await site.fetch('SELECT value, reason, partition, "offset" FROM oncebox.parked')
        assert (parked["value"], parked["offset"]) == (b"bad", 0)
        assert "undecodable" in parked["reason"]
        site.produce(name, [message("k3")])
        await site.drained(name)
    assert ran == {"k1": 1, "k2": 1, "k3": 1}


async def test_a_dead_letter_topic_created_in_time_gets_its_letter(site: Site, notices: list[str]) -> None:
    name, ran = site.topic(letters=False), Counter[str]()
    async with site.worker(registry_for(ran, name)):
        site.produce(name, [b"bad", message("k")])
        await eventually(lambda: "letter_not_written" in notices, 20, "nobody was told")
        create_topic(site, f"dlq.{name}")
        await site.drained(name, within=20)
    assert [letter.value for letter in site.dead_letters(name)] == [b"bad"]
    assert await site.count("parked") == 0


async def test_without_a_result_topic_the_result_is_kept_and_its_record_parked_after_hold(
    site: Site, notices: list[str]
) -> None:
    name, other, ran = site.topic(), site.topic(), Counter[str]()
    registry = registry_for(ran, name, results=f"missing-{name}")

    @registry.handler(other, scope="jobs", key="id")
    async def elsewhere(message: Message) -> None:
        ran[message.id] += 1

    async with site.worker(registry, ONCEBOX_HOLD="1s"):
        site.produce(name, [message("k"), message("k")])
        site.produce(other, [message("other")])
        await eventually(lambda: "letter_not_written" in notices, 20, "nobody was told")
        assert site.committed_offsets(name)[0] == 0, "held, not skipped"
        await site.drained(name, other, within=20)
    assert ran == {"k": 1, "other": 1}
    assert await site.states() == {"k": "completed", "other": "completed"}
    rows = await site.fetch('SELECT "offset", value FROM oncebox.parked ORDER BY 1')
    assert [(row["offset"], row["value"]) for row in rows] == [(0, message("k")), (1, message("k"))]
    assert not site.dead_letters(name)


async def test_what_was_owed_is_paid_once_the_topic_exists(site: Site) -> None:
    name, results, ran = site.topic(letters=False), site.topic(letters=False), Counter[str]()
    results = f"late-{results}"
    async with site.worker(registry_for(ran, name, results=results), ONCEBOX_HOLD="500ms"):
        site.produce(name, [message("k"), b"bad"])
        await site.drained(name, within=20)
        assert await site.count("parked") == 2
        create_topic(site, results)
        create_topic(site, f"dlq.{name}")

        async def paid() -> bool:
            return await site.count("parked") == 0

        await eventually(paid, 8, "never paid", every=0.2)
    assert [seen.value for seen in site.read(results)] == [b'{"id":"k"}']
    assert [letter.value for letter in site.dead_letters(name)] == [b"bad"]
