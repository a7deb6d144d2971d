"""Where a group begins, and where it refuses to guess."""

import time
from collections import Counter
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from pydantic import BaseModel

from tests.engine.load import message, starts
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Context, Registry
from worker.errors import OnceboxError


class Message(BaseModel):
    """What the tests send."""

    id: str


def registry_for(topic: str, ran: Counter[str]) -> Registry:
    registry = Registry()

    @registry.handler(topic, scope="payments", key="id")
    async def work(message: Message, context: Context) -> None:
        ran[context.key] += 1

    return registry


@pytest.mark.parametrize("start", ["earliest", "latest", "time"])
async def test_a_new_group_begins_where_it_was_told_to_and_later_workers_there_too(site: Site, start: str) -> None:
    name, ran = site.topic(2), Counter[str]()
    now = round(time.time() * 1000)
    ages = {"two hours": 7_200_000, "half an hour": 1_800_000}
    old = [
        Sent(message(f"{age} {p}"), partition=p, timestamp_ms=now - before)
        for age, before in ages.items()
        for p in (0, 1)
    ]
    site.produce(name, old)
    setting = datetime.fromtimestamp(now / 1000 - 3600, UTC).isoformat() if start == "time" else start
    await site.run(registry_for(name, ran), ONCEBOX_START=setting)
    site.produce(name, [Sent(message(f"new {p}"), partition=p) for p in (0, 1)])
    # The first worker's decision holds, whatever a later one is told.
    await site.run(registry_for(name, ran), ONCEBOX_START="latest" if start == "earliest" else "earliest")
    expected = {"earliest": ["two hours", "half an hour", "new"], "time": ["half an hour", "new"], "latest": ["new"]}
    assert ran == {f"{age} {p}": 1 for age in expected[start] for p in (0, 1)}


async def test_a_partition_that_appears_later_is_read_from_its_beginning(site: Site) -> None:
    name, ran = site.topic(1), Counter[str]()
    site.produce(name, [message("old")])
    async with site.worker(registry_for(name, ran), ONCEBOX_START="latest", ONCEBOX_METADATA_MAX_AGE="1s"):
        await eventually(lambda: site.committed_offsets(name).get(0) == 1, 20, "never began")
        for future in site.admin.create_partitions([NewPartitions(name, 2)]).values():
            future.result(10)
        site.produce(name, [Sent(message("new partition"), partition=1)])
        await eventually(lambda: ran["new partition"], 20, "what came before we noticed the partition is lost")
    assert ran == {"new partition": 1}


@pytest.mark.stories
async def test_a_committed_offset_outside_the_log_holds_its_partition_and_alerts(site: Site) -> None:
    name = site.topic(2)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    site.produce(name, [Sent(message(f"p{p}-{n}"), partition=p) for n in range(20) for p in (0, 1)])
    site.put_group(name, {0: 5, 1: 5})
    for future in site.admin.delete_records([TopicPartition(name, 0, 10)]).values():
        future.result(10)
    worker = site.spawn()
    await eventually(lambda: site.committed_offsets(name)[1] == 20, 20, "another partition stands still", every=0.1)
    await worker.says("partition_held")
    (held,) = worker.events("partition_held")
    assert held["partition"] == f"{name}/0"
    assert "5" in held["why"]
    assert held["alert"]
    assert set(starts(site)) == {f"p1-{n}" for n in range(5, 20)}, "nothing of the held partition runs"
    assert site.committed_offsets(name)[0] == 5, "its place is kept for the operator to decide"
    site.produce(name, [Sent(message("later"), partition=1), Sent(message("held"), partition=0)])
    await eventually(lambda: starts(site)["later"], 20, "another partition stands still")
    assert "held" not in starts(site)
    assert worker.popen.poll() is None


async def test_a_held_partition_ends_a_run_until_idle_with_an_error_when_the_others_are_finished(site: Site) -> None:
    name, ran = site.topic(2), Counter[str]()
    site.produce(name, [Sent(message(f"p{p}-{n}"), partition=p) for n in range(20) for p in (0, 1)])
    site.put_group(name, {0: 5, 1: 5})
    for future in site.admin.delete_records([TopicPartition(name, 0, 10)]).values():
        future.result(10)
    with pytest.raises(OnceboxError, match=f"{name}/0 is held"):
        await site.run(registry_for(name, ran))
    assert set(ran) == {f"p1-{n}" for n in range(5, 20)}
    assert site.committed_offsets(name) == {0: 5, 1: 20}


@pytest.mark.stories
async def test_a_log_that_is_cut_below_a_running_worker_holds_the_partition_instead_of_skipping(site: Site) -> None:
    name = site.topic(2)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    count, filler = 400, "x" * 10_000
    site.produce(name, [Sent(message(f"p0-{n}", filler=filler, seconds=0.15), partition=0) for n in range(count)])
    worker = site.spawn(ONCEBOX_IN_FLIGHT="8", ONCEBOX_CONCURRENCY="8", ONCEBOX_PARTITION_FETCH_BYTES="100kB")
    await eventually(lambda: starts(site), 20, "never began")
    for future in site.admin.delete_records([TopicPartition(name, 0, count - 10)]).values():
        future.result(10)
    site.produce(name, [Sent(message("other"), partition=1)])
    await worker.says("partition_held", 40)
    await eventually(lambda: starts(site)["other"], 20, "another partition stands still")
    ran = {int(key.removeprefix("p0-")) for key in starts(site) if key.startswith("p0-")}
    assert max(ran) < count - 10, "the cut part is not skipped silently"
    assert site.committed_offsets(name)[0] <= max(ran) + 1
