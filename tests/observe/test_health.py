"""Probes tell the truth: alive while the loop moves, ready only while everything answers, and why not otherwise."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.engine.load import message, starts
from tests.engine.site import Process, Site
from tests.observe.scraping import Scraped, get, health
from tests.waiting import eventually
from worker import Registry
from worker.app.observing import observing
from worker.errors import ConfigError
from worker.kafka.consumer import Consumer
from worker.observe.health import Probe
from worker.rules.lanes import Lane
from worker.settings import load_settings
from worker.stack import Stack

pytestmark = pytest.mark.stories


class Probed:
    """A worker process whose probes are asked."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port

    @classmethod
    async def spawn(cls, site: Site, **environment: str) -> "Probed":
        process = site.spawn(ONCEBOX_HTTP_PORT="0", **environment)
        await process.says("http_opened")
        return cls(process, process.events("http_opened")[0]["port"])

    async def ready(self) -> tuple[int, dict[str, Any]]:
        return await asyncio.to_thread(health, self.port)

    async def live(self) -> int:
        status, _ = await asyncio.to_thread(health, self.port, "/livez")
        return status

    async def until_ready(self, within: float = 30) -> None:
        async def ready() -> bool:
            status, checks = await self.ready()
            return status == 200 and all(check["ok"] for check in checks.values())

        await eventually(ready, within, f"never ready\n{self.process.tail()}", every=0.05)

    async def until_failing(self, check: str, within: float = 20) -> str:
        """Wait until exactly this check is the reason for not being ready, or one of them; why."""

        async def failing() -> str:
            status, checks = await self.ready()
            return str(checks[check]["why"]) if status == 503 and not checks[check]["ok"] else ""

        return str(await eventually(failing, within, f"{check} never failed", every=0.05))


async def test_without_postgres_a_worker_is_alive_and_not_ready_and_says_why(
    site_on_own_postgres: Site, own_postgres: Stack
) -> None:
    site = site_on_own_postgres
    site.extra["VICTIM_TOPICS"] = f"external={site.topic()}"
    worker = await Probed.spawn(site)
    await worker.until_ready()
    server = own_postgres.server("postgres")
    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    try:
        why = await worker.until_failing("postgres")
        assert "Postgres did not answer" in why
        assert await worker.live() == 200
        _, checks = await worker.ready()
        assert checks["kafka"]["ok"]
        assert checks["group"]["ok"], "it stays in the group"
        scraped = await asyncio.to_thread(Scraped, worker.port)
        assert scraped.value("oncebox_ready") == 0
        assert scraped.value("oncebox_check_ok", check="postgres") == 0
    finally:
        await asyncio.to_thread(server.start)
    await worker.until_ready()


async def test_without_kafka_a_worker_is_alive_and_not_ready_and_says_why(
    site_on_own_kafka: Site, own_kafka: Stack
) -> None:
    site = site_on_own_kafka
    site.extra["VICTIM_TOPICS"] = f"external={site.topic(2)}"
    worker = await Probed.spawn(site, ONCEBOX_REQUEST_TIMEOUT="3s")
    await worker.until_ready()
    server = own_kafka.server("kafka")
    await asyncio.to_thread(server.pause)  # nothing is refused, nothing answers: to the client it is an idle topic
    try:
        why = await worker.until_failing("kafka")
        assert "Kafka" in why
        assert await worker.live() == 200
        assert (await worker.ready())[1]["postgres"]["ok"]
    finally:
        await asyncio.to_thread(server.resume)
    await worker.until_ready(60)


async def test_a_worker_without_partitions_is_ready_when_the_group_has_placed_it(site: Site) -> None:
    site.extra["VICTIM_TOPICS"] = f"external={site.topic(1)}"
    workers = [await Probed.spawn(site), await Probed.spawn(site)]
    for worker in workers:
        await worker.until_ready()

    async def placed() -> bool:
        scrapes = [await asyncio.to_thread(Scraped, worker.port) for worker in workers]
        return sorted(scraped.value("oncebox_partitions_assigned") for scraped in scrapes) == [0, 1]

    await eventually(placed, 20, "the partition is nobody's", every=0.2)
    for worker in workers:
        await worker.until_ready()


async def test_told_to_stop_it_is_unready_at_once_drains_and_exits_with_0(site: Site) -> None:
    name = site.topic()
    site.extra["VICTIM_TOPICS"] = f"external={name}"
    worker = await Probed.spawn(site, ONCEBOX_DRAIN="20s")
    await worker.until_ready()
    site.produce(name, [message("slow", seconds=1.5)])
    await eventually(lambda: starts(site), 20, "never started")
    told = time.monotonic()
    worker.process.signal(signal.SIGTERM)
    why = await worker.until_failing("running", within=1)
    assert "stop" in why
    assert worker.process.popen.poll() is None, "the handler still runs"
    assert await worker.live() == 200, "a drain is no reason to be killed"
    assert await worker.process.ended(15) == 0, worker.process.tail()
    assert time.monotonic() - told < 10
    assert await site.states() == {"slow": "completed"}


async def test_probes_write_no_log_lines_and_tell_more_when_asked(site: Site) -> None:
    site.extra["VICTIM_TOPICS"] = f"external={site.topic()}"
    worker = await Probed.spawn(site, ONCEBOX_LOG_LEVEL="debug")
    await worker.until_ready()
    before = worker.process.log.read_text()
    for path in ("/livez", "/readyz", "/healthz", "/metrics", "/readyz?verbose", "/nothing"):
        status, _, body = await asyncio.to_thread(get, worker.port, path)
        assert status == (404 if path == "/nothing" else 200)
        assert ('"handlers_running"' in body) == ("verbose" in path)
    written = worker.process.log.read_text().removeprefix(before)
    assert not [line for line in written.splitlines() if "readyz" in line or "metrics" in line or "http" in line]


async def test_a_reading_loop_that_stands_still_is_not_alive(
    site: Site, port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, go_on = asyncio.Event(), asyncio.Event()
    poll = Consumer.poll

    async def standing(self: Consumer, lanes: Sequence[Lane], *, most: int, wait_ms: int) -> Any:
        stuck.set()
        await go_on.wait()
        return await poll(self, lanes, most=most, wait_ms=wait_ms)

    monkeypatch.setattr(Consumer, "poll", standing)
    monkeypatch.setattr("worker.app.observing._STUCK", -4.0)  # of a drain time of 5 s
    registry = Registry()

    @registry.handler(site.topic(), scope="jobs", key="id", kind="repeatable")
    async def work(message: dict[str, Any]) -> None:
        pass

    async with site.worker(registry, ONCEBOX_HTTP_PORT="0"):
        await asyncio.wait_for(stuck.wait(), 20)

        async def alive(status: int) -> bool:
            return (await asyncio.to_thread(health, port(), "/livez"))[0] == status

        await eventually(lambda: alive(503), 10, "still called alive")
        _, checks = await asyncio.to_thread(health, port(), "/livez")
        assert "has not moved" in checks["reading"]["why"]
        go_on.set()
        await eventually(lambda: alive(200), 10, "never alive again")


async def test_a_probe_that_had_to_queue_believes_the_answers_of_others() -> None:
    heard = [0.0]
    probe = Probe("it", asyncio.Event().wait, every=1, within=0.01, heard=lambda: heard[0])
    assert probe.check() == "it was not asked yet"
    await probe.once()
    assert "did not answer within 0.01 s" in (probe.check() or "")
    heard[0] = time.monotonic() + 60
    await probe.once()
    assert probe.check() is None


async def test_a_probe_survives_whatever_its_question_raises() -> None:
    async def ask() -> None:
        raise ValueError("odd")

    probe = Probe("it", ask, every=1, within=1)
    await probe.once()
    assert (probe.check() or "").startswith("odd")


async def test_the_usual_port_gives_way_when_it_is_taken_and_nobody_asked_for_it() -> None:
    told: list[dict[str, Any]] = []
    settings = load_settings(environ={"DATABASE_URL": "postgres://nobody@127.0.0.1/none"})
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(2):
            seen = observing(settings, lambda _, **fields: told.append(fields), asyncio.Event())
            (await opened.enter_async_context(seen)).announce()
    first, second = told
    assert first["port"] != second["port"] != settings.http.port
    assert "9464 is taken" in second["why"]
    asked = load_settings(environ={"DATABASE_URL": "postgres://nobody@127.0.0.1/none", "ONCEBOX_HTTP_PORT": "9464"})
    async with observing(settings, lambda *_, **__: None, asyncio.Event()):
        with pytest.raises(ConfigError, match="9464"):
            await opened.enter_async_context(observing(asked, lambda *_, **__: None, asyncio.Event()))
