"""Logs: one form for all, lines of a handler know their message, floods are counted, and no secret is ever in them."""

import asyncio
import json
import logging
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.site import Site
from tests.stack.client import Sent
from worker.observe.logs import Repeats
from worker.stack.topics import create

HANDLERS = """
import asyncio, logging
import structlog
from pydantic import BaseModel
from worker import Context, Effect, NotExecuted, Registry, Reject, Scope, header

registry = Registry()
registry.add(Scope("people", ttl="1h", private_keys=True))
plain, bound = logging.getLogger("shop"), structlog.get_logger("shop.bound")

class Order(BaseModel):
    act: str = "return"
    card: str = ""

@registry.handler("TOPIC-open", scope="payments", key=header("Idempotency-Key"))
async def order(message: Order, context: Context, effect: Effect) -> str:
    async def child() -> None:
        bound.info("in a child")
    plain.info("in plain words: %s", message.act)
    bound.info("in bound words", step=1)
    context.log.info("in its own words")
    await asyncio.gather(child())
    if message.act == "retry" and context.attempt == 1:
        raise NotExecuted("not yet")
    if message.act == "reject":
        raise Reject("no " + message.card)
    async with effect:
        if message.act == "fail":
            raise RuntimeError(message.card)
    return message.card

@registry.handler("TOPIC-private", scope="people", key=header("Idempotency-Key"), kind="repeatable")
def sign_up(message: Order) -> str:
    plain.info("in a thread")
    bound.info("in a thread, bound")
    if message.act == "fail":
        raise RuntimeError(message.card)
    return message.card
"""
SECRETS = ("s3cret-password", "s3cret-scope", "s3cret-key", "s3cret-kafka-key", "s3cret-card", "s3cret-header")


def send_everything(site: Site, topic: str) -> None:
    """Messages that succeed, are rejected, fail, are retried, misuse a key, and cannot be read; all carry secrets."""
    given = [("X-Token", b"s3cret-header")]
    for number, act in enumerate(("return", "reject", "fail", "retry")):
        body = json.dumps({"act": act, "card": "s3cret-card"}).encode()
        shown = [*given, ("Idempotency-Key", b"open-%d" % number)]
        site.produce(f"{topic}-open", [Sent(body, key=b"s3cret-kafka-key", headers=shown)])
        hidden = Sent(body, key=b"s3cret-kafka-key", headers=[*given, ("Idempotency-Key", b"s3cret-key-%d" % number)])
        site.produce(f"{topic}-private", [hidden, hidden._replace(value=body.replace(b"card", b"cord"))])
    site.produce(f"{topic}-private", [b'{"s3cret-card', Sent(b'{"act": 5, "card": "s3cret-card"}')])


async def test_no_secret_no_private_key_and_no_payload_is_in_the_logs_of_a_run(site: Site, tmp_path: Path) -> None:
    topic = f"t-{secrets.token_hex(4)}"
    names = [f"{prefix}{topic}-{kind}" for prefix in ("", "dlq.") for kind in ("open", "private")]
    create({"bootstrap.servers": site.bootstrap}, dict.fromkeys(names, 1), config={}, exist_ok=False)
    (tmp_path / "shop.py").write_text(HANDLERS.replace("TOPIC", topic))
    send_everything(site, topic)
    environment = {
        **site.environment,
        "ONCEBOX_SCOPE_PEOPLE_SECRET": "s3cret-scope" * 4,
        "REDIS_URL": "redis://:s3cret-password@127.0.0.1:1/0",
        "ONCEBOX_LOG_LEVEL": "debug",
        "ONCEBOX_HTTP_PORT": "0",
    }
    log = tmp_path / "log"
    with log.open("wb") as out:
        run = [sys.executable, "-c", "from worker.cli import main; main()", "run", "shop"]
        worker = await asyncio.create_subprocess_exec(*run, env=environment, cwd=tmp_path, stdout=out, stderr=out)
        try:
            await site.drained(f"{topic}-open", f"{topic}-private")
        finally:
            worker.terminate()
            await asyncio.wait_for(worker.wait(), 20)
    text = log.read_text()
    assert worker.returncode == 0, text[-3000:]
    leaks = [(secret, line) for line in text.splitlines() for secret in SECRETS if secret in line]
    assert not leaks, leaks[:3]

    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"event", "level", "timestamp", "logger"} <= line.keys() for line in lines), "one form for all"
    by_event = {line["event"]: line for line in lines if line["logger"].startswith(("shop", "oncebox.handler"))}
    place = {"operation": "payments/order", "topic": f"{topic}-open", "partition": 0}
    for event in ("in plain words: return", "in bound words", "in its own words", "in a child"):
        assert place.items() <= by_event[event].items(), by_event[event]
        assert by_event[event]["key"].startswith("open-")
    for event in ("in a thread", "in a thread, bound"):
        assert by_event[event]["operation"] == "people/sign_up"
        assert "key" not in by_event[event]
    assert all("key" not in line for line in lines if line["logger"] == "oncebox"), "the engine's decisions name no key"


OTHERS = """
import logging, sys, warnings
from worker.observe.logs import configure
from worker.settings import LogSettings
configure(LogSettings(format=sys.argv[1]))
logging.getLogger("aiokafka.conn").warning("lost %s", "node 1")
logging.getLogger("asyncpg").error("asyncpg says")
warnings.warn("deprecated")
card = "s3cret-card"
try:
    card / 2
except TypeError:
    logging.getLogger("other").exception("broke")
"""


def written(form: str) -> str:
    run = subprocess.run([sys.executable, "-c", OTHERS, form], capture_output=True, text=True, check=True, timeout=60)
    return run.stderr


def test_lines_of_the_clients_and_of_other_libraries_have_the_same_form() -> None:
    lines = [json.loads(line) for line in written("json").splitlines()]
    told = [(line["logger"], line["level"]) for line in lines]
    assert told == [("aiokafka.conn", "warning"), ("asyncpg", "error"), ("py.warnings", "warning"), ("other", "error")]
    assert lines[0]["event"] == "lost node 1"
    assert "TypeError" in lines[3]["exception"]


@pytest.mark.parametrize("form", ["json", "pretty"])
def test_a_traceback_shows_no_values(form: str) -> None:
    text = written(form)
    assert "TypeError" in text
    assert "s3cret-card" not in text


def test_an_event_that_floods_is_written_a_few_times_and_then_counted() -> None:
    now = 0.0
    repeats = Repeats(lines=3, period=10.0, clock=lambda: now)
    assert [repeats.pass_on("a") for _ in range(5)] == [0, 0, 0, None, None]
    assert repeats.pass_on("b") == 0
    assert repeats.suppressed == 2
    now = 10.0
    assert repeats.pass_on("a") == 2, "the next one says how many there were"
    assert repeats.pass_on("a") == 0


def test_what_someone_must_look_at_is_never_held_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from worker.observe import logs

    monkeypatch.setattr(logs, "_repeats", Repeats(lines=0, period=10.0))
    with caplog.at_level(logging.INFO):
        logs.notice("quiet")
        logs.notice("loud", alert="look")
    assert logs.suppressed() == 1
