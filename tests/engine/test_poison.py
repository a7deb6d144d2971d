"""Poison: what cannot be handled becomes a dead letter with the original bytes, and its neighbours go on."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest_asyncio
from confluent_kafka import Producer
from pydantic import BaseModel, field_validator

from tests.engine.load import message
from tests.engine.site import Letter, Site
from tests.stack.client import Headers, Sent
from worker import Context, Record, Registry, field, header
from worker.stack.topics import create

KEY = "Idempotency-Key"
BIG = 900_000
NO_KEY = b'{"amount": 1}'


class Message(BaseModel):
    """What the tests send."""

    id: str | None = None
    amount: int = 0

    @field_validator("id")
    @classmethod
    def buggy(cls, value: str | None) -> str | None:
        """A validator with a bug: what it raises is no ValueError."""
        if value == "breaks the validator":
            raise KeyError(value)
        return value


@dataclass
class Ward:
    """A running worker with a handler for each kind of payload, and what it has done."""

    site: Site
    model: str
    tenants: str
    raw: str
    record: str
    ran: Counter[str]
    taken: list[Any]

    async def take(self, topic: str, records: list[Sent]) -> list[Letter]:
        """Produce the records between two healthy ones and wait until all are finished; gives the dead letters."""
        headers: Headers = [(KEY, b"healthy 1"), ("tenant", b"t")]
        self.site.produce(topic, [Sent(b'{"id": "healthy 1"}', headers=headers)])
        produce(self.site.bootstrap, topic, records)
        headers = [(KEY, b"healthy 2"), ("tenant", b"t")]
        self.site.produce(topic, [Sent(b'{"id": "healthy 2"}', headers=headers)])
        await self.site.drained(topic, within=30)
        assert self.ran["healthy 1"] == self.ran["healthy 2"] == 1, "neighbours complete"
        return self.site.dead_letters(topic)


def produce(bootstrap: str, topic: str, records: list[Sent]) -> None:
    """Also what the ordinary producer refuses for its size."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 8_000_000})
    for one in records:
        producer.produce(topic, one.value, one.key, headers=list(one.headers), partition=0, timestamp=one.timestamp_ms)
    assert producer.flush(30) == 0


@pytest_asyncio.fixture
async def ward(site: Site) -> AsyncIterator[Ward]:
    made = Ward(site, site.topic(), site.topic(), site.topic(), site.topic(), Counter(), [])
    registry = Registry()

    def note(key: str, message: object) -> None:
        made.ran[key] += 1
        if key == "null":
            made.taken.append(message)

    @registry.handler(made.model, scope="payments", key=header(KEY) | field("id"))
    async def of_model(message: Message, context: Context) -> None:
        note(context.key, message)

    @registry.handler(made.tenants, scope="payments", key=header(KEY), tenant=header("tenant"))
    async def of_tenant(message: dict[str, Any], context: Context) -> None:
        note(context.key, message)

    @registry.handler(made.raw, scope="payments", key=header(KEY))
    async def of_bytes(message: bytes | None, context: Context) -> None:
        note(context.key, message)

    @registry.handler(made.record, scope="payments", key=header(KEY))
    async def of_record(message: Record, context: Context) -> None:
        note(context.key, message)

    async with site.worker(registry):
        yield made


def with_key(*values: bytes, value: bytes | None = NO_KEY) -> Sent:
    return Sent(value, headers=[(KEY, each) for each in values])


REFUSED = {
    "cut JSON": ("undecodable", Sent(b'{"id": ')),
    "no text": ("undecodable", Sent(b"\xff\xfe\x00")),
    "empty value": ("undecodable", Sent(b"")),
    "nested too deep": ("undecodable", Sent(b"[" * 100_000)),
    "a list": ("invalid_payload", Sent(b"[1, 2]")),
    "a number for a string": ("invalid_payload", Sent(b'{"id": 5}')),
    "a string for a number": ("invalid_payload", Sent(b'{"id": "k", "amount": "many"}')),
    "a validator with a bug": ("invalid_payload", Sent(b'{"id": "breaks the validator"}')),
    "no value": ("invalid_payload", Sent(None, key=b"tombstone")),
    "neither key nor value": ("invalid_payload", Sent(None)),
    "no key anywhere": ("missing_key", Sent(NO_KEY)),
    "empty key": ("invalid_key", with_key(b"")),
    "a key of 513 bytes": ("invalid_key", with_key(b"x" * 513)),
    "a key that is no UTF-8": ("invalid_key", with_key(b"\xc3\x28")),
    "two different keys": ("invalid_key", with_key(b"one", b"two")),
    "900 kB": ("undecodable", Sent(b"x" * BIG, key=b"big")),
    "huge headers": ("undecodable", Sent(b"x", headers=[(f"h{n}", b"v" * 4000) for n in range(200)])),
    "odd headers": ("undecodable", Sent(b"x", headers=[("", b""), ("n", None), ("n", b"2"), ("ü", b"\xff")])),
}


async def test_what_cannot_be_handled_is_dead_lettered_unchanged(ward: Ward) -> None:
    letters = await ward.take(ward.model, [record for _, record in REFUSED.values()])
    by_offset = {letter.offset: letter for letter in letters}
    assert len(letters) == len(by_offset) == len(REFUSED)
    for offset, (what, (reason, record)) in enumerate(REFUSED.items(), start=1):
        letter = by_offset[offset]
        assert letter.reason == reason, what
        same = (letter.key, letter.value, tuple(letter.headers)) == (record.key, record.value, tuple(record.headers))
        assert same, f"{what}: the original came through changed"
        assert letter.about["__dlq.errors.topic"] == ward.model.encode()
        assert letter.about["__dlq.errors.partition"] == b"0"
        assert letter.about["__dlq.errors.group"] == ward.site.group.encode()
        assert letter.about["oncebox.scope"] == b"payments"
    assert (await ward.site.states()).keys() == {"healthy 1", "healthy 2"}, "a refusal leaves no entry"


LEGAL = {
    "a\0b": with_key(b"a\0b"),
    "\N{SNOWMAN}\N{PILE OF POO}": with_key("\N{SNOWMAN}\N{PILE OF POO}".encode()),
    "x" * 512: with_key(b"x" * 512),
    "given twice, equal": with_key(b"given twice, equal", b'"given twice, equal"'),
    "900 kB": Sent(message("900 kB", filler="x" * BIG)),
    "from 1970": Sent(message("from 1970"), timestamp_ms=1),
}


async def test_what_is_unusual_but_legal_runs_once(ward: Ward) -> None:
    assert not await ward.take(ward.model, [*LEGAL.values(), *LEGAL.values()])
    assert ward.ran == dict.fromkeys([*LEGAL, "healthy 1", "healthy 2"], 1)
    rows = await ward.site.fetch("SELECT key FROM oncebox.entries WHERE state = 2")
    assert {row["key"].decode() for row in rows} == ward.ran.keys()


async def test_a_message_without_its_tenant_is_not_run_for_nobody(ward: Ward) -> None:
    (letter,) = await ward.take(ward.tenants, [with_key(b"k")])
    assert letter.reason == "missing_tenant"


async def test_a_null_value_reaches_handlers_that_take_one(ward: Ward) -> None:
    null = with_key(b"null", value=None)
    assert not await ward.take(ward.raw, [null])
    assert ward.taken == [None]
    ward.ran.clear()
    assert not await ward.take(ward.record, [null])
    record = ward.taken[1]
    assert (record.value, tuple(record.headers)) == (None, ((KEY, b"null"),))


async def test_a_record_of_two_megabytes_runs_or_is_dead_lettered_whole(site: Site) -> None:
    name = site.topic(max_message_bytes=4_000_000)
    ran, registry = Counter[str](), Registry()

    @registry.handler(name, scope="payments", key="id")
    async def work(message: Message, context: Context) -> None:
        ran[context.key] += 1

    large, bad = message("large", filler="x" * 2_000_000), b"x" * 2_000_000
    produce(site.bootstrap, name, [Sent(bad), Sent(large), Sent(large), Sent(message("k"))])
    async with site.worker(registry):
        await site.drained(name)
    assert ran == {"large": 1, "k": 1}
    (letter,) = site.dead_letters(name)
    assert (letter.reason, letter.value) == ("undecodable", bad)


async def test_a_dead_letter_that_its_topic_does_not_take_is_cut_and_the_whole_record_kept(site: Site) -> None:
    name = site.topic(letters=False, max_message_bytes=4_000_000)
    create({"bootstrap.servers": site.bootstrap}, {f"dlq.{name}": 1}, config={}, exist_ok=False)
    registry = Registry()

    @registry.handler(name, scope="payments", key="id")
    async def work(message: Message) -> None: ...

    bad = b"x" * 2_000_000
    produce(site.bootstrap, name, [Sent(bad), Sent(b"small, but bad"), Sent(message("k"))])
    async with site.worker(registry):
        await site.drained(name)
    letters = {letter.offset: letter for letter in site.dead_letters(name)}
    assert letters.keys() == {0, 1}, "what is too large does not stop what is not"
    assert letters[0].reason == "too_large"
    assert len(letters[0].value or b"") < 1_000_000
    assert (letters[1].reason, letters[1].value) == ("undecodable", b"small, but bad")
    (parked,) = await site.fetch("SELECT value FROM oncebox.parked")
    assert parked["value"] == bad


async def test_a_dead_letter_of_a_record_from_the_future_is_written_now(site: Site) -> None:
    name = site.topic(letters=False, message_timestamp_after_max_ms=2**62)
    create({"bootstrap.servers": site.bootstrap}, {f"dlq.{name}": 1}, config={}, exist_ok=False)
    registry, ran = Registry(), Counter[str]()

    @registry.handler(name, scope="payments", key="id")
    async def work(message: Message, context: Context) -> None:
        ran[context.key] += 1

    future = round(time.time() * 1000) + 10 * 365 * 86_400_000
    produce(site.bootstrap, name, [Sent(b"bad", timestamp_ms=future), Sent(message("k"), timestamp_ms=future)])
    async with site.worker(registry):
        await site.drained(name)
    assert ran == {"k": 1}
    (seen,) = site.read(f"dlq.{name}")
    assert abs(seen.timestamp_ms - time.time() * 1000) < 60_000
    about = Letter.of(seen).about
    assert about["oncebox.timestamp"] == str(future).encode()
    assert about["oncebox.timestamp-type"] == b"CreateTime"
