"""Records from a file: parked before they are claimed, judged by time, and never half applied."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.backlog.process import Command
from tests.backlog.shop import Shop, body
from tests.backlog.telling import Telling
from tests.engine.site import Site
from tests.waiting import eventually
from worker.app.choosing import Plan
from worker.app.filing import Lines, forecast_file, replay_file
from worker.rules.exports import Exported
from worker.rules.windows import Window


def written(site: Site, lines: Sequence[bytes], name: str = "backlog.jsonl", time_field: str | None = None) -> Lines:
    path = site.folder / name
    path.write_bytes(b"\n".join(lines) + b"\n")
    return Lines.of(path, time_field)


def exported(key: str, *, ts: int = 1_700_000_000_000, **more: Any) -> bytes:
    """As `kcat -J` writes a record."""
    payload = json.dumps({"id": key, "tenant": "acme", **more})
    place = {"topic": "webhooks", "partition": 3, "offset": 7, "tstype": "create", "ts": ts, "broker": 1}
    return json.dumps({**place, "headers": ["trace", "abc"], "key": "customer", "payload": payload}).encode()


async def replayed_file(site: Site, shop: Shop, telling: Telling, lines: Lines, **options: Any) -> int:
    plan = Plan("", Window(), handler="jobs/order", **options)
    running = replay_file(site.settings(), shop.registry, plan, lines, actor="test", show=telling, stop=asyncio.Event())
    return await asyncio.wait_for(running, 60)


async def foretold_file(site: Site, shop: Shop, lines: Lines) -> dict[str, Any]:
    return await forecast_file(site.settings(), shop.registry, Plan("", Window(), handler="jobs/order"), lines)


async def test_a_file_runs_what_is_missing_and_names_the_lines_it_cannot_read(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, [body("delivered")])
    await site.run(shop.registry)
    lines = written(
        site,
        [
            exported("delivered"),
            exported("missed"),
            b"{half a line",
            body("event"),
            b"",
            b'["no", "object"]',
            exported("missed"),
            exported("delivered", amount=5),
            b'{"topic": "t", "partition": 0, "offset": 1, "payload": 5}',
        ],
    )
    told = await foretold_file(site, shop, lines)
    assert told["classes"] == {"malformed": 3, "run": 2, "replay": 2, "misuse": 1}
    assert told["examples"]["malformed"] == ["line 3", "line 6", "line 9"]
    assert await site.count("parked") == 0
    assert await replayed_file(site, shop, telling, lines) == 2
    assert shop.ran == Counter({"delivered": 1, "missed": 1, "event": 1})
    outcomes = telling.report["outcomes"]
    assert outcomes == {"executed": 2, "replayed": 2, "misuse": 1, "malformed": 3}
    assert telling.report["examples"]["malformed"] == ["line 3", "line 6", "line 9"]
    await eventually(lambda: nothing_parked(site), 10, "finished records stay parked")
    [letter] = site.dead_letters(shop.topic)
    assert letter.reason == "misuse"
    assert (letter.about["__dlq.errors.topic"] or b"").startswith(b"file:")
    assert ("trace", b"abc") in letter.headers
    assert await replayed_file(site, shop, telling, lines) == 2
    assert shop.ran == Counter({"delivered": 1, "missed": 1, "event": 1})


async def test_a_handler_of_several_topics_runs_a_file_too(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic(), site.topic())
    assert await replayed_file(site, shop, telling, written(site, [body("a"), body("b")])) == 0
    assert shop.ran == Counter({"a": 1, "b": 1})
    assert telling.report["outcomes"] == {"executed": 2}


async def nothing_parked(site: Site) -> bool:
    return await site.count("parked") == 0


async def test_what_may_have_been_forgotten_is_refused_by_its_time(site: Site, telling: Telling) -> None:
    """The horizon of the operation: entries that expired before it may have been pruned."""
    shop = Shop(site.topic())
    site.produce(shop.topic, [body("known")])
    await site.run(shop.registry)
    await site.fetch("ALTER TABLE oncebox.operations ADD COLUMN IF NOT EXISTS horizon timestamptz")
    await site.fetch("UPDATE oncebox.operations SET horizon = '2026-06-01T00:00:00Z'")
    day = 86_400_000
    horizon = 1_780_272_000_000
    lines = written(
        site,
        [
            exported("known", ts=horizon - 90 * day),
            exported("old", ts=horizon - 31 * day),
            exported("young", ts=horizon - 29 * day),
            body("without-a-time"),
        ],
    )
    told = await foretold_file(site, shop, lines)
    assert told["classes"] == {"replay": 1, "beyond_ttl": 2, "run": 1}
    assert await replayed_file(site, shop, telling, lines) == 2
    assert shop.ran == Counter({"known": 1, "young": 1})
    assert telling.report["refused"] == {"beyond_ttl": 2}
    assert telling.report["examples"]["beyond_ttl"] == ["line 2", "line 4"]
    assert await replayed_file(site, shop, telling, lines, run_beyond_ttl=True, reason="I looked") == 0
    assert shop.ran == Counter({"known": 1, "young": 1, "old": 1, "without-a-time": 1})


async def test_the_time_of_an_event_may_be_in_its_payload(site: Site) -> None:
    lines = written(
        site,
        [body("a", created=1_700_000_000), body("b", created="2023-11-14T22:13:20Z"), body("c")],
        time_field="created",
    )
    times = [one.at for _, one in lines.read(0) if isinstance(one, Exported)]
    assert times == [1_700_000_000_000, 1_700_000_000_000, None]


async def test_an_empty_file_is_no_error(site: Site, telling: Telling) -> None:
    path = site.folder / "empty"
    path.touch()
    assert await replayed_file(site, Shop(site.topic()), telling, Lines.of(path, None)) == 0
    assert "is empty" in telling.reasons[0]


@pytest.mark.timeout(120)
async def test_what_a_killed_replay_had_parked_is_finished_by_a_worker_or_by_going_on(site: Site) -> None:
    topic = site.topic()
    site.extra |= {"BACKLOG_TOPIC": topic, "BACKLOG_SECONDS": "0.2", "ONCEBOX_HOLD": "1s"}
    await site.fetch("CREATE TABLE oncebox.effects (key text)")
    keys = [f"k{n}" for n in range(300)]
    path = site.folder / "backlog.jsonl"
    path.write_bytes(b"".join(b'{"id": "%b"}\n' % key.encode() for key in keys))
    command = Command(site, "replay", "tests.backlog.registry", "--file", path, "--handler", "order", "--json")
    job = (await command.says("started"))["job"]
    await eventually(lambda: some_effects(site, 20), 30, "nothing runs", every=0.05)
    await command.kill()
    parked = await site.count("parked")
    assert parked > 0, "what it had not finished is kept"
    worker = Command(site, "run", "tests.backlog.registry")
    try:
        await eventually(lambda: nothing_parked(site), 60, "a worker does not finish what is parked", every=0.1)
    finally:
        worker.popen.send_signal(signal.SIGTERM)
        assert await worker.ended() == 0
    again = Command(site, "replay", "tests.backlog.registry", "--resume", job, "--json")
    assert await again.ended() == 0, again.log[-3000:]
    rows = await site.fetch("SELECT key, count(*) AS n FROM oncebox.effects GROUP BY key")
    assert {row["key"]: row["n"] for row in rows} == dict.fromkeys(keys, 1)


async def some_effects(site: Site, most: int) -> bool:
    return await site.count("effects") > most


def test_a_file_that_changed_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "backlog"
    path.write_bytes(b'{"id": 1}\n')
    first = Lines.of(path, None)
    assert Lines.of(path, None) == first
    path.write_bytes(b'{"id": 2}\n')
    assert Lines.of(path, None).topic != first.topic
