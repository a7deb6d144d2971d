"""The README cannot rot: its example runs for real, and it names only what exists."""

import asyncio
import json
import re
import secrets
import subprocess
import sys
from pathlib import Path

import asyncpg

from tests.conftest import Produce
from tests.demo.command import ROOT, environment, finish
from tests.stack.client import Sent
from worker import Registry
from worker.cli.loading import load_registry
from worker.cli.verbs import VERBS
from worker.settings.model import all_settings
from worker.stack import Stack

README = (ROOT / "README.md").read_text()


def _example() -> str:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_runs_once_per_key(
    stack: Stack, kafka: str, database_url: str, schema: str, group: str, produce: Produce, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(_example())
    stack.create_topics(dict.fromkeys(("payments.charges", "orders"), 1), exist_ok=True)
    here = f"{database_url}{'&' if '?' in database_url else '?'}search_path={schema}"
    given = environment(
        KAFKA_BOOTSTRAP_SERVERS=kafka,
        DATABASE_URL=here,
        ONCEBOX_SCHEMA=schema,
        ONCEBOX_GROUP=group,
        ONCEBOX_DEMO_FOLDER=str(tmp_path / "books"),
    )
    assert finish("migrate", env=given, cwd=tmp_path)[0] == 0
    asyncio.run(_execute(here, "CREATE TABLE orders (client_reference text, item text)"))
    name = secrets.token_hex(4)
    money = Sent(json.dumps({"delivery_id": name, "amount_cents": 100}).encode())
    order = json.dumps({"order": {"client_reference": name, "item": "umbrella"}}).encode()
    produce("payments.charges", [money, money])
    produce("orders", [order, order])

    code, _, errors = finish("run", "shop", "--until-idle", env=given, cwd=tmp_path)
    assert code == 0, errors
    charges = (tmp_path / "books/gateway.jsonl").read_text()
    assert charges.count(f"account of {name}") == 1
    rows = asyncio.run(_fetch(here, "SELECT item FROM orders WHERE client_reference = $1", name))
    assert [row["item"] for row in rows] == ["umbrella"]


def test_the_example_of_the_test_kit_passes(tmp_path: Path) -> None:
    shop, test = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "shop.py").write_text(shop)
    (tmp_path / "test_shop.py").write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    given = {**environment(), "ONCEBOX_DEMO_FOLDER": str(tmp_path / "books"), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_example_registers_what_the_text_around_it_says() -> None:
    namespace: dict[str, object] = {"__name__": "shop"}
    exec(compile(_example(), "README.md", "exec"), namespace)
    registry = namespace["registry"]
    assert isinstance(registry, Registry)
    handlers = {handler.operation: handler for handler in registry.handlers}
    assert handlers["charge"].look_up is namespace["look_up"]
    assert {name: handler.kind.name for name, handler in handlers.items()} == {
        "charge": "EXTERNAL",
        "record_order": "TRANSACTIONAL",
    }
    assert load_registry(["handlers.payments", "handlers.orders", "handlers.search"]).topics == {
        "payments.charges",
        "orders",
        "search.documents",
    }


def test_every_command_target_and_setting_it_names_exists() -> None:
    verbs = set(re.findall(r"(?:`|^|\()oncebox ([a-z]+)", README, re.MULTILINE))
    assert verbs >= {"run", "check", "migrate", "demo", "stack"}
    assert verbs <= set(VERBS)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^|; )make ([a-z]+)", README, re.MULTILINE)) <= targets
    known = {name for setting in all_settings(()) for name in setting.variables} | {"ONCEBOX_CONFIG"}
    named = set(re.findall(r"\b((?:ONCEBOX|KAFKA|DATABASE|REDIS)_[A-Z_]*[A-Z])\b", README))
    assert {name for name in named if name not in known} <= {"KAFKA_SASL", "KAFKA_SSL"}
    for target in re.findall(r"\]\(([A-Za-z][\w./]*)\)|`((?:worker|handlers)/[\w/]*(?:\.py)?)`", README):
        path = next(filter(None, target))
        assert (ROOT / path).exists(), path


async def _execute(url: str, query: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(query)
    finally:
        await connection.close()


async def _fetch(url: str, query: str, argument: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(query, argument)
    finally:
        await connection.close()
