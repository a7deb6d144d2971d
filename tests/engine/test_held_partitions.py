"""A held partition: the ledger says why, pruning waits, and an operator's decision is followed without a restart."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.engine.site import Site
from tests.engine.test_outage import catch_up, message, prune, registry_for
from tests.waiting import eventually
from worker.app.retiring import Retired, retire_feeds
from worker.errors import UsageError
from worker.stack.topics import create

pytestmark = pytest.mark.stories


async def held(site: Site) -> Any:
    rows = await site.fetch("SELECT * FROM oncebox.feeds WHERE held_since IS NOT NULL")
    return rows[0] if rows else None


async def retire(site: Site, topic: str) -> list[Retired]:
    return await retire_feeds(site.settings(), site.group, topic, partitions=[0], actor="me", reason="seen")


async def create_anew(site: Site, topic: str) -> None:
    for future in site.admin.delete_topics([topic]).values():
        future.result(10)

    def again() -> bool:
        try:
            create({"bootstrap.servers": site.bootstrap}, {topic: 1}, config={}, exist_ok=False)
        except KafkaException:  # deleting goes on after it was acknowledged
            return False
        return True

    await eventually(lambda: asyncio.to_thread(again), 20, "the topic is not gone", every=0.2)


async def test_a_topic_that_was_created_anew_is_held_until_an_operator_retires_its_feed(
    site: Site, notices: list[str]
) -> None:
    name, ran = site.topic(), Counter[str]()
    registry = registry_for(name, ran)
    site.produce(name, [message(f"old {n}") for n in range(5)])
    await catch_up(site, registry, name)
    await create_anew(site, name)
    # The new log is longer than the old one: by its offsets alone nothing looks wrong.
    new = [message("old 0"), *(message(f"new {n}") for n in range(8))]
    site.produce(name, new)
    async with site.worker(registry, ONCEBOX_SAMPLE_EVERY="1s"):
        row = await eventually(lambda: held(site), 20, "the partition is not held", every=0.1)
        assert "created anew" in row["held_why"]
        assert not any(key.startswith("new") for key in ran)
        assert (await prune(site)).pruned[0].horizon is None
        (answer,) = await retire(site, name)
        assert answer.goes_on is not None
        assert (answer.goes_on.position, answer.goes_on.anew) == (0, True)
        await eventually(lambda: ran["new 7"], 20, "it did not go on", every=0.1)
        await site.drained(name)
        assert await held(site) is None
        await eventually(lambda: site.fetch("SELECT 1 FROM oncebox.samples WHERE watermark = 9"), 20, every=0.1)
        assert (await prune(site)).pruned[0].horizon is not None, "it is alive again"
    assert ran == Counter({f"old {n}": 1 for n in range(5)} | {f"new {n}": 1 for n in range(8)})
    assert notices.count("partition_goes_on") == 1
    (act,) = await site.fetch("SELECT * FROM oncebox.audit")
    assert (act["actor"], act["action"], act["reason"]) == ("me", "feeds retire", "seen")
    assert act["old_state"].startswith("held: ")
    assert act["new_state"] == "retired, goes on at offset 0"


async def test_a_topic_that_is_created_anew_while_it_is_read_is_held_by_the_next_sample(site: Site) -> None:
    name, ran = site.topic(), Counter[str]()
    site.produce(name, [message(f"old {n}") for n in range(5)])
    async with site.worker(registry_for(name, ran), ONCEBOX_SAMPLE_EVERY="1s", ONCEBOX_METADATA_MAX_AGE="1s"):
        await site.drained(name)
        await eventually(lambda: site.fetch("SELECT 1 FROM oncebox.samples WHERE watermark = 5"), 20, every=0.1)
        await create_anew(site, name)
        await eventually(lambda: held(site), 30, "the partition is not held", every=0.1)
        rows = await site.fetch("SELECT max(watermark) FROM oncebox.samples WHERE end_offset < 5 AND watermark >= 5")
        assert rows[0][0] is None, "the new log looks finished"


@pytest.mark.parametrize("restarted", [False, True], ids=["while a worker waits", "while no worker runs"])
async def test_a_place_that_retention_overtook_goes_on_at_the_first_record_left(site: Site, restarted: bool) -> None:
    name, ran = site.topic(), Counter[str]()
    registry = registry_for(name, ran)
    site.produce(name, [message(str(n)) for n in range(20)])
    await asyncio.to_thread(site.put_group, name, {0: 5})
    for future in site.admin.delete_records([TopicPartition(name, 0, 10)]).values():
        future.result(10)
    async with site.worker(registry):
        await eventually(lambda: held(site), 20, "the partition is not held", every=0.1)
        if not restarted:
            (answer,) = await retire(site, name)
            await site.drained(name)
    if restarted:
        (answer,) = await retire(site, name)
        await site.run(registry)
    assert answer.goes_on is not None
    assert answer.goes_on.position == 10
    assert ran == Counter({str(n): 1 for n in range(10, 20)})
    assert site.committed_offsets(name)[0] == 20


async def test_a_feed_that_is_being_read_is_not_retired(site: Site) -> None:
    name = site.topic()
    await catch_up(site, registry_for(name, Counter()), name)
    with pytest.raises(UsageError, match="somebody reads it"):
        await retire(site, name)
    with pytest.raises(UsageError, match="no feed on elsewhere"):
        await retire(site, "elsewhere")
    assert await site.count("audit") == 0
