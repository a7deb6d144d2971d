"""A record that the Kafka client itself cannot read: its partition is held, the others go on, the worker lives."""

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as Builder

from tests.engine.load import message, starts
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually

pytestmark = pytest.mark.stories


class NotText(str):
    """A header's name as a client in another language may write it: bytes that are no UTF-8."""

    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfe"


async def produce_unreadable(site: Site, topic: str, partition: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=site.bootstrap)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch._builder = Builder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=16384,
        )
        assert batch.append(timestamp=None, key=None, value=message("unreadable"), headers=[(NotText("x"), b"1")])
        await (await producer.send_batch(batch, topic, partition=partition))
    finally:
        await producer.stop()


@pytest.mark.timeout(60)
async def test_a_header_name_that_is_no_text_holds_only_its_partition(site: Site) -> None:
    name = site.topic(2)
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    site.produce(name, [Sent(message(f"before{p}"), partition=p) for p in (0, 1)])
    await produce_unreadable(site, name, partition=0)
    site.produce(name, [Sent(message(f"behind{p}"), partition=p) for p in (0, 1)])
    worker = site.spawn()

    def has_run(key: str) -> bool:
        assert worker.popen.poll() is None, f"the worker ended\n{worker.tail()}"
        return key in starts(site)

    await eventually(lambda: has_run("behind1"), 10, "another partition stands still", every=0.1)
    await worker.says("partition_held", 20)
    site.produce(name, [Sent(message("later"), partition=1)])
    await eventually(lambda: has_run("later"), 10, "another partition stands still", every=0.1)
    assert starts(site) == {"before0": 1, "before1": 1, "behind1": 1, "later": 1}
    await eventually(
        lambda: site.committed_offsets(name) == {0: 1, 1: 3}, 10, "not up to the unreadable one", every=0.1
    )
