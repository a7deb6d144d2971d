"""Being observed: the HTTP port of a process, the checks behind its probes, and the figures behind its metrics.

Opened before everything else and closed after it, so that a start, a drain and a stop can be watched, too.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

from worker.app.figures import DatabaseFigures, EngineFigures, GroupFigures
from worker.app.opening import Engine
from worker.engine.ports import Notice
from worker.engine.worker import Worker
from worker.errors import ServiceUnavailable
from worker.kafka.consumer import Consumer
from worker.kafka.probing import KafkaProbe
from worker.observe.collector import Exposition, Sample
from worker.observe.events import Counters
from worker.observe.health import Health, Probe
from worker.observe.http import HttpPort
from worker.observe.logs import suppressed
from worker.observe.pages import pages
from worker.observe.stores import Stores
from worker.settings import Settings
from worker.version import VERSION

# How often the outside is asked whether it is there, and how long it may take to say so.
_EVERY = 2.0
_WITHIN = 5.0
# The reading loop goes round at least once a second; only a rebalance that waits for handlers may hold it up.
_STUCK = 30.0


class Observing:
    """What is watched of a process. Without a port nothing is measured, and nothing costs anything."""

    def __init__(self, settings: Settings, notice: Notice, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._started = False
        self.on = settings.http.port is not None
        self.port = 0
        self.counters = Counters()
        self.stores = Stores()
        self.health = Health()
        self.exposition = Exposition()
        self.notice = self.counters.listening(notice) if self.on else notice
        self.health.live["loop"] = lambda: None
        self.health.ready["running"] = self._running
        self.exposition.add(self.counters.samples)
        self.exposition.add(self.stores.samples)
        self.exposition.add(self._samples)

    def announce(self) -> None:
        """Tell where it can be asked, once nothing speaks against a start any more."""
        wanted = self._settings.http.port
        gave_way = wanted not in (0, self.port)
        told = {"why": f"port {wanted} is taken, and nobody asked for it"} if gave_way else {}
        if self.on:
            self.notice("http_opened", host=self._settings.http.host, port=self.port, **told)

    def watch_engine(self, engine: Engine) -> None:
        """Watch an open engine until its tasks are closed."""
        if not self.on:
            return
        ledger, tasks = engine.ledger, engine.tasks
        operations = [route.name for route in engine.routes]
        self.counters.expect(operation=operations, topic=engine.topics)
        figures, database = EngineFigures(engine), DatabaseFigures(operations)
        self.exposition.add(figures.samples)
        self.exposition.add(database.samples)
        heard = functools.partial(self.stores.heard, "postgres")
        postgres = Probe("Postgres", ledger.ping, every=_EVERY, within=_WITHIN, heard=heard)
        self.health.ready["session"] = lambda: None if ledger.session.safe() else "the lease was not renewed in time"
        self.health.ready["postgres"] = postgres.check
        self.health.about = lambda: _about(engine)
        tasks.spawn(figures.fold(), "fold figures")
        tasks.spawn(postgres.run(), "probe postgres")
        tasks.spawn(self._survey(engine, database), "survey")

    def watch_member(self, engine: Engine, worker: Worker, consumer: Consumer, duties: Collection[str]) -> None:
        """Watch the member of a group that feeds an engine."""
        if not self.on:
            return
        self.counters.expect(duty=duties)
        probe = KafkaProbe(consumer)
        kafka = Probe("Kafka", probe.ask, every=_EVERY, within=_WITHIN)
        loop = asyncio.get_running_loop()
        patience = _STUCK + self._settings.engine.drain.total_seconds()

        def reading() -> str | None:
            idle = loop.time() - worker.read_at
            if self._stop.is_set() or not worker.read_at or idle < patience:
                return None
            return f"the reading loop has not moved for {idle:.0f} s"

        def group() -> str | None:
            if not consumer.reading:
                return "the Kafka client's fetch task died"
            return None if consumer.placed else "the group has not assigned partitions, or they have no place yet"

        self.health.live["reading"] = reading
        self.health.ready["kafka"] = kafka.check
        self.health.ready["group"] = group
        self.exposition.add(GroupFigures(consumer, probe, engine.topics).samples)
        engine.tasks.spawn(kafka.run(), "probe kafka")
        self.started()

    def started(self) -> None:
        """Everything is open: from now on the checks decide."""
        self._started = True

    def _running(self) -> str | None:
        if self._stop.is_set():
            return "told to stop: draining"
        return None if self._started else "starting"

    def _samples(self) -> list[Sample]:
        checks = self.health.ask(self.health.ready)
        found: list[Sample] = [("oncebox_check_ok", (name,), int(check.ok)) for name, check in checks.items()]
        found.append(("oncebox_ready", (), int(all(check.ok for check in checks.values()))))
        found.append(("oncebox_log_lines_suppressed_total", (), suppressed()))
        return found

    async def _survey(self, engine: Engine, figures: DatabaseFigures) -> None:
        every = 2 * engine.settings.engine.settle_every.total_seconds()
        while True:
            # Postgres being away is told by others; the figures say how old they are.
            with contextlib.suppress(ServiceUnavailable):
                figures.keep(await engine.ledger.survey.look())
            await asyncio.sleep(every)


@contextlib.asynccontextmanager
async def observing(settings: Settings, notice: Notice, stop: asyncio.Event) -> AsyncIterator[Observing]:
    """Open the HTTP port if there is to be one. The usual port, if nobody asked for it and it is taken, gives way."""
    seen = Observing(settings, notice, stop)
    http = settings.http
    if http.port is None:
        yield seen
        return
    port = HttpPort(pages(seen.health, seen.exposition), notice)
    await port.open(http.host, http.port, or_any=settings.sources.get("http.port", "default") == "default")
    seen.port = port.port
    try:
        yield seen
    finally:
        await port.close()


def _about(engine: Engine) -> Mapping[str, Any]:
    pipeline = engine.pipeline
    return {
        "version": VERSION,
        "group": engine.settings.kafka.group,
        "session": engine.ledger.session.id,
        "operations": [route.name for route in engine.routes],
        "open_circuits": [route.name for route in engine.routes if route.circuit.open],
        "open_claims": pipeline.open_claims,
        "handlers_running": len(pipeline.running()),
        "handlers_overdue": pipeline.overdue,
    }
