"""Single records are read back from exactly where they stand, or not at all."""

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Registry
from worker.errors import ServiceUnavailable
from worker.kafka.readback import ReadBack


class Message(BaseModel):
    """What the tests send."""

    id: str


def told(event: str, **fields: object) -> None: ...


async def test_a_record_is_read_back_byte_for_byte_from_any_place_in_any_order(site: Site) -> None:
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


@pytest.mark.parametrize("gone", [False, True])
async def test_a_doubt_that_nobody_parked_is_reported_from_the_log_or_alerted(
    site: Site, notices: list[str], gone: bool
) -> None:
    name, registry = site.topic(), Registry()

    @registry.handler(name, scope="payments", key="id")
    async def breaks(message: Message) -> Any:
        raise ConnectionError

    site.produce(name, [Sent(message("k"), headers=(("x", b"1"),))])
    async with site.worker(registry, ONCEBOX_GRACE="2s"):

        async def parked() -> bool:
            return await site.count("parked") == 1

        await eventually(parked, 20, "not parked", every=0.05)
        await site.fetch("DELETE FROM oncebox.parked")
        if gone:
            for future in site.admin.delete_records([TopicPartition(name, 0, 1)]).values():
                future.result(10)
        event = "doubt_without_record" if gone else "doubt_reported"
        await eventually(lambda: event in notices, 20, f"no {event}: {notices}")
        await site.drained(name)
    letters = site.dead_letters(name)
    assert [(one.value, one.headers, one.reason) for one in letters] == (
        [] if gone else [(message("k"), (("x", b"1"),), "unknown")]
    )
    assert await site.states() == {"k": "unknown"}
    assert await site.count("parked") == (0 if gone else 1), "kept for whoever settles it"
