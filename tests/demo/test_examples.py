"""The example handlers: every message delivered twice, one effect each."""

import asyncio
import importlib
import json
import secrets
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from handlers import book as books
from handlers.book import Book
from handlers.gateway import gateway
from handlers.payments import charge, look_up
from tests.conftest import ConsumeAll, Produce
from tests.demo.command import ROOT, environment, finish
from tests.stack.client import Sent
from worker import Verdict
from worker.stack import Stack


def test_a_message_delivered_twice_has_one_effect(
    stack: Stack, kafka: str, database_url: str, schema: str, produce: Produce, consume_all: ConsumeAll, tmp_path: Path
) -> None:
    run = f"t-{secrets.token_hex(3)}"
    topics = {f"{run}.{name}": 2 for name in ("payments.charges", "orders", "search.documents")}
    stack.create_topics(topics | {f"dlq.{name}": 2 for name in topics})
    given = environment(
        KAFKA_BOOTSTRAP_SERVERS=kafka,
        DATABASE_URL=database_url,
        ONCEBOX_SCHEMA=schema,
        ONCEBOX_GROUP=run,
        ONCEBOX_DEMO_RUN=run,
        ONCEBOX_DEMO_FOLDER=str(tmp_path),
    )
    header = [("Idempotency-Key", f'"{run}-1"'.encode())]
    money = Sent(json.dumps({"delivery_id": f"{run}-charge", "amount_cents": 250}).encode(), headers=header)
    refused = Sent(json.dumps({"delivery_id": f"{run}-refused", "amount_cents": 0}).encode())
    order = {"order": {"client_reference": run, "item": "umbrella", "quantity": 2}}
    document = Sent(json.dumps({"delivery_id": run, "document_id": f"{run}-document", "text": "words"}).encode())
    produce(f"{run}.payments.charges", [money, money, refused, refused])
    produce(f"{run}.orders", [json.dumps(order).encode()] * 2)
    produce(f"{run}.search.documents", [document, document])

    assert finish("migrate", env=given, cwd=tmp_path)[0] == 0
    code, _, errors = finish("run", "worker.demo.handlers", "--until-idle", env=given, cwd=tmp_path)
    assert code == 0, errors

    assert [line["account"] for line in _lines(tmp_path / "gateway.jsonl")] == [f"account of {run}-charge"]
    assert [line["id"] for line in _lines(tmp_path / "index.jsonl")] == [f"{run}-document"]
    orders, entries = asyncio.run(_rows(database_url, schema, run))
    assert [tuple(row) for row in orders] == [("umbrella", 2)]
    assert {(row["operation"], row["result_status"]) for row in entries} == {
        ("charge", "ok"),
        ("charge", "rejected"),
        ("record_order", "ok"),
        ("index_document", "ok"),
    }
    assert not [seen for topic in topics for seen in consume_all(f"dlq.{topic}")]


async def test_the_reconciler_asks_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEBOX_DEMO_FOLDER", str(tmp_path))
    context: Any = _Context(secrets.token_hex(8))
    assert charge.look_up is look_up
    assert await look_up(context) == Verdict.not_executed()
    receipt = await gateway.charge("account", 100, idempotency_key=context.effect_key())
    assert await gateway.charge("account", 100, idempotency_key=context.effect_key()) == receipt
    assert await look_up(context) == Verdict.executed({"receipt": receipt})


def test_of_several_processes_that_write_one_id_all_are_given_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEBOX_DEMO_FOLDER", str(tmp_path))
    with ProcessPoolExecutor(4) as pool:
        given = list(pool.map(_write, range(40)))
    lines = _lines(books.folder() / "shared.jsonl")
    assert len(lines) == 40
    assert given == [lines[0]["number"]] * 40


def test_the_examples_are_importable_under_the_name_that_the_wheel_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "handlers", tmp_path / "shipped/examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("payments", "orders", "search"):
        module = importlib.import_module(f"shipped.examples.{name}")
        assert module.registry.handlers
        assert not [other for other in vars(module).values() if getattr(other, "__module__", "").startswith("handlers")]
    for name in [name for name in sys.modules if name.startswith("shipped")]:
        del sys.modules[name]


class _Context:
    """As much of a context as a reconciler needs."""

    def __init__(self, token: str) -> None:
        self._token = token

    def effect_key(self) -> str:
        return self._token


def _write(number: int) -> int:
    line = asyncio.run(Book("shared").write("one", number=number))
    return int(line["number"])


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in file.read_text().splitlines() if text]


async def _rows(url: str, schema: str, run: str) -> tuple[list[Any], list[Any]]:
    connection = await asyncpg.connect(url)
    try:
        query = "SELECT item, quantity FROM example_orders WHERE client_reference = $1"
        orders = await connection.fetch(query, run)
        return orders, await connection.fetch(f'SELECT operation, result_status FROM "{schema}".readable_entries')
    finally:
        await connection.close()
