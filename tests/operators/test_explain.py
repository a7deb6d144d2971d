"""`oncebox keys explain` tells what a record is to oncebox, and survives whatever it is given."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Answer, complaint
from tests.engine.site import Site
from tests.operators.conftest import Command
from worker.app.explaining import differences
from worker.errors import UsageError
from worker.rules.described import read_described
from worker.rules.document import Document

MODULE = """
from pydantic import BaseModel
from worker import Registry, Scope, header, field

registry = Registry()
registry.add(Scope("people", ttl="1h", private_keys=True))

class Charge(BaseModel):
    id: str
    amount: int

@registry.handler({charges!r}, scope="payments", key=header("Idempotency-Key") | field("id"), tenant=field("shop"))
async def charge(message: Charge) -> None: ...

@registry.handler("mixed", scope="jobs", key="id", when={{"kind": "a"}})
async def first(message: dict) -> None: ...

@registry.handler("mixed", scope="jobs", key="id", when={{"kind": "b"}})
async def second(message: dict) -> None: ...

@registry.handler("people", scope="people", key="email", kind="repeatable")
async def greet(message: dict) -> None: ...
"""


def write(folder: Path, name: str, record: Any) -> str:
    (folder / name).write_text(json.dumps(record))
    return name


def kcat(topic: str, value: object, *headers: str) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": 0,
        "offset": 3,
        "tstype": "create",
        "ts": 1,
        "headers": list(headers),
        "key": None,
        "payload": json.dumps(value),
    }


async def test_a_record_is_explained_before_and_after_it_was_done(site: Site, command: Command) -> None:
    name = site.topic()
    (site.folder / "explained.py").write_text(MODULE.format(charges=name))
    secret = {"ONCEBOX_SCOPE_PEOPLE_SECRET": "a secret of at least thirty-two bytes"}
    folder = site.folder
    charge = {"id": "c1", "amount": 5, "shop": "north"}

    async def explain(*words: str) -> Answer:
        return await command("keys", "explain", *words, **secret)

    one = write(folder, "one.json", kcat(name, charge, "Idempotency-Key", '"order-7"'))
    before = await explain(one, "explained")
    assert before.code == 0, before
    for words in (
        "payments/charge (external)",
        "'order-7', from header(idempotency-key), the first there of",
        "'north', from field(shop)",
        "there is no entry: it would run",
    ):
        assert words in before.output

    retry = write(
        folder, "retry.json", kcat(name, {"shop": "north", "amount": 5.0, "id": "c1"}, "idempotency-key", "order-7")
    )
    assert "the second is answered from the first" in (await explain(one, "explained", "--against", retry)).output
    other = write(folder, "other.json", kcat(name, {**charge, "amount": 6}, "Idempotency-Key", "order-7"))
    assert (
        "they collide as misuse: equal keys, but the payloads differ (amount)"
        in (await explain(one, "explained", "--against", other)).output
    )
    south = write(folder, "south.json", kcat(name, {**charge, "shop": "south"}, "Idempotency-Key", "order-7"))
    assert "their tenants differ, so both run" in (await explain(one, "explained", "--against", south)).output

    id_ = json.loads((await explain(one, "explained", "--json")).output)["records"][0]["entry"]
    await site.fetch(
        "INSERT INTO oncebox.entries"
        " (id, operation, fence, state, kind, format, expires_at, result_status, fingerprint)"
        " VALUES ($1::uuid, 1, 1000, 2, 1, 1, clock_timestamp() + interval '1 day', 1, 'other')",
        id_,
    )
    assert "it would be dead-lettered as misuse" in (await explain(one, "explained")).output

    private = await explain(
        write(folder, "ann.json", {"topic": "people", "value": {"email": "ann@x.org"}}), "explained"
    )
    assert "(private), from field(email)" in private.output
    assert "ann@x.org" not in private.output
    for record, words in (
        ({"topic": "mixed", "value": {"id": 1, "kind": "b"}}, "chosen by when= from jobs/first, jobs/second"),
        ({"topic": "mixed", "value": {"id": 1}}, "their when= does not choose one"),
        ({"topic": "elsewhere", "value": {}}, "no handler reads elsewhere"),
        (
            {"topic": name, "value": {"amount": 1, "shop": "x", "id": 7}},
            "dead-lettered as invalid_payload: id: string_type",
        ),
        ({"topic": name, "value": "{"}, "dead-lettered as undecodable"),
    ):
        answer = await explain(write(folder, "odd.json", record), "explained")
        assert (answer.code, words in answer.output) == (0, True), answer
    assert "No such file" in complaint(await explain("nowhere.json", "explained"), 64)
    assert "there is no module" in complaint(await explain(one, "nowhere"), 78)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b"\xff\xfe",
        b"{}",
        b'{"topic": ""}',
        b'{"topic": 7}',
        b'{"topic": "t", "partition": "x"}',
        b'{"topic": "t", "offset": 1.5}',
        b'{"topic": "t", "headers": 7}',
        b'{"topic": "t", "headers": ["a"]}',
        b'{"topic": "t", "headers": [["a"], ["b", "c"]]}',
        b'{"topic": "t", "headers": [7, "x"]}',
        b'{"topic": "t"}\n{"topic": "t"}',
        b"[" * 100_000,
        b'{"topic": "t", "value": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"topic": "t", "offset": 1e400}',
    ],
)
def test_what_is_no_record_is_refused_in_words(text: bytes) -> None:
    with pytest.raises(UsageError, match="it is what `kcat -J` writes"):
        read_described(text)


def test_headers_may_be_written_in_three_ways() -> None:
    ways = (b'{"a": "1", "b": null}', b'[["a", "1"], ["b", null]]', b'["a", "1", "b", null]')
    read = [read_described(b'{"topic": "t", "headers": %b}' % way).headers for way in ways]
    assert read == [(("a", b"1"), ("b", None))] * 3


def test_no_digit_of_a_payload_is_lost() -> None:
    record = read_described(b'{"topic": "t", "value": {"n": 12345678901234567890123, "x": 0.1}}')
    assert Document(record.value).json["n"] == 12345678901234567890123


def test_differences_are_named_by_their_paths_alone() -> None:
    one = b'{"a": {"b": 1, "c": 2}, "d": true, "same": [1]}'
    other = b'{"a": {"b": 1, "c": 3}, "d": 1, "new": "secret", "same": [1]}'
    assert differences(one, other) == ["a.c", "d", "new"]
    assert differences(b"no json", other) == []
