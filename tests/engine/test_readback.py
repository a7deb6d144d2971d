"""Single records are read back from exactly where they stand, or not at all."""

import pytest
from confluent_kafka import TopicPartition

from tests.engine.site import Site
from tests.stack.client import Sent
from worker.errors import ServiceUnavailable
from worker.kafka.readback import ReadBack


def told(event: str, **fields: object) -> None: ...


async def test_a_record_is_read_back_byte_for_byte_and_commits_nothing(site: Site) -> None:
    name = site.topic(2, letters=False)
    sent = [Sent(f"v{n}".encode(), partition=n % 2, headers=(("h", b"\xff"), ("n", None))) for n in range(6)]
    site.produce(name, sent)
    originals = ReadBack(site.settings().kafka, told)
    try:
        for partition, offset, value in ((0, 2, b"v4"), (1, 0, b"v1"), (1, 2, b"v5"), (0, 0, b"v0")):
            record = await originals.read(name, partition, offset)
            assert record is not None, (partition, offset)
            assert (record.topic, record.partition, record.offset) == (name, partition, offset)
            assert (record.value, tuple(record.headers)) == (value, (("h", b"\xff"), ("n", None)))
    finally:
        await originals.close()
    assert site.committed_offsets(name) == {}


async def test_what_is_gone_is_told_apart_from_what_cannot_be_asked(site: Site) -> None:
    name = site.topic(1, letters=False)
    site.produce(name, [b"a", b"b", b"c"])
    originals = ReadBack(site.settings().kafka, told)
    try:
        assert await originals.read("never-was", 0, 0) is None
        assert await originals.read(name, 7, 0) is None
        assert await originals.read(name, 0, 3) is None
        assert await originals.read(name, 0, 1000) is None
        place = TopicPartition(name, 0, 2)
        for future in site.admin.delete_records([place]).values():
            future.result(10)
        assert await originals.read(name, 0, 1) is None, "retention took it"
        kept = await originals.read(name, 0, 2)
        assert kept is not None
        assert kept.value == b"c"
    finally:
        await originals.close()
    nowhere = site.settings(KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1").kafka
    unreachable = ReadBack(nowhere, told)
    with pytest.raises(ServiceUnavailable):
        await unreachable.read(name, 0, 0)
    await unreachable.close()
