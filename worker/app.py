"""The composition root: opens everything in order, wires it, supervises it, and stops it in the opposite order."""

import asyncio
import contextlib
import dataclasses
import gc
import os
import signal
from collections.abc import AsyncIterator, Mapping
from typing import Any

import structlog

from worker.engine.calling import Caller
from worker.engine.intake import Intake
from worker.engine.items import Item
from worker.engine.janitor import Janitor
from worker.engine.letters import Letters
from worker.engine.pipeline import Limits, Outside, Pipeline
from worker.engine.ports import Ledger
from worker.engine.routes import Route, identity_text, prepare
from worker.engine.tasks import Tasks
from worker.engine.worker import Pace, Worker
from worker.errors import ConfigError, OnceboxError, ServiceUnavailable
from worker.filter.filter import Filter
from worker.kafka.consumer import Consumer
from worker.kafka.places import Places
from worker.kafka.publisher import Publisher
from worker.kafka.quiet import quieten
from worker.kafka.sockets import break_cleanly
from worker.kafka.topics import open_topics
from worker.ledger.clock import clock
from worker.ledger.ledger import PostgresLedger
from worker.ledger.which import read_which
from worker.observe.logs import configure, notice
from worker.rules.handlers import Handler
from worker.rules.registry import Registry
from worker.settings import Settings


def run(settings: Settings, registry: Registry, *, until_idle: bool = False) -> int:
    """Run one worker until it is told to stop; the exit code."""
    configure(settings.log)
    quieten()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_until_signalled(settings, registry, until_idle))
    return uvloop.run(_until_signalled(settings, registry, until_idle))


async def _until_signalled(settings: Settings, registry: Registry, until_idle: bool) -> int:
    stop = asyncio.Event()
    _listen(stop)
    await serve(settings, registry, stop=stop, until_idle=until_idle)
    return 0


async def serve(settings: Settings, registry: Registry, *, stop: asyncio.Event, until_idle: bool = False) -> None:
    """Run one worker in this event loop until `stop` is set, or the backlog is done; raises what killed it."""
    break_cleanly()
    handlers = effective_handlers(settings, registry)
    await refuse_missing_topics(settings, handlers)
    secrets = scope_secrets(settings, handlers)
    engine = settings.engine
    ledger = PostgresLedger(
        settings.database,
        lease=engine.lease.total_seconds(),
        crash_cap=engine.crash_cap,
        longest_timeout=max(h.timeout.total_seconds() for h in handlers),
        first_probe=min(_first_probe(h) for h in handlers),
        notice=notice,
    )
    async with contextlib.AsyncExitStack() as closing:
        await ledger.open()
        closing.push_async_callback(ledger.close)
        identities = {h.name: identity_text(h, secrets) for h in handlers}
        operations, topics = await ledger.register(handlers, group=settings.kafka.group, identities=identities)
        routes = [prepare(h, operations[h.name], topics, secrets) for h in handlers]
        resources = await closing.enter_async_context(shared_resources(registry))
        await _work(settings, ledger, routes, resources, stop=stop, until_idle=until_idle)


async def _work(
    settings: Settings,
    ledger: PostgresLedger,
    routes: list[Route],
    resources: Any,
    *,
    stop: asyncio.Event,
    until_idle: bool,
) -> None:
    engine, kafka = settings.engine, settings.kafka
    tasks = Tasks()
    publisher = Publisher(kafka, notice)
    caller = Caller(
        ledger.session,
        ledger.transactions,
        resources=resources,
        result_limit=engine.result_limit,
        threads=min(engine.concurrency, 64),
        clock=clock,
        log=_message_log,
    )
    redis = await _open_filter(settings, ledger)
    parts = Ledger(ledger.session, ledger.claims, ledger.finals, ledger.parking, ledger.transactions, redis)
    letters = Letters(group=kafka.group, prefix=kafka.dead_letter_prefix)
    outside = Outside(Intake(routes), parts, publisher, letters, caller, tasks, clock, notice)
    hold = engine.hold.total_seconds()
    pipeline = Pipeline(
        outside,
        Limits(
            in_flight=engine.in_flight,
            concurrency=engine.concurrency,
            claim_batch=engine.claim_batch,
            claims_in_flight=engine.claims_in_flight,
            hold=hold,
            crash_cap=engine.crash_cap,
        ),
    )
    pace = Pace(2 * engine.in_flight, engine.in_flight_bytes, kafka.fetch_records, engine.drain.total_seconds())
    worker = Worker(pipeline, pace, beat=ledger.session.beat, notice=notice)
    topics = {topic for route in routes for topic in route.handler.topics}
    ttls = {t: {r.plan.ttl for r in routes if t in r.handler.topics} for t in topics}
    places = Places(group=kafka.group, start=kafka.start, ttls=ttls, feeds=ledger.feeds, notice=notice)
    consumer = Consumer(settings, sorted(topics), worker, places, notice)
    worker.consumer = consumer
    janitor = Janitor(
        ledger.settling,
        ledger.parking,
        tidy=ledger.finals.tidy,
        release_strays=ledger.release_strays,
        bring=pipeline.take_parked,
        operations=[route.plan.operation for route in routes],
        every=engine.settle_every.total_seconds(),
        hold=hold,
        notice=notice,
    )
    tasks.spawn(worker.tick(), "tick")
    try:
        await consumer.start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(200_000, 50, 100)
        reading = tasks.spawn(worker.read(), "read")
        tasks.spawn(worker.commit(), "commit")
        tasks.spawn(janitor.run(), "janitor")
        every = engine.sample_every.total_seconds()
        tasks.spawn(worker.sample(ledger.feeds, kafka.group, ttls, every), "sample")
        notice("worker_started", group=kafka.group, session=ledger.session.id, topics=sorted(topics))
        tasks.spawn(_watch(pipeline, consumer, engine.overdue_limit), "watchdog")
        await _until_over(worker, consumer, tasks, stop, until_idle)
        notice("worker_stopping", next=f"handlers have {engine.drain.total_seconds():g} s to end")
        await worker.stop()
        await asyncio.wait([reading], timeout=5)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(consumer.commit(), 5)
    finally:
        await consumer.stop()
        await publisher.close()
        await tasks.close()
        if redis is not None:
            await redis.close()
        caller.close()
    for route in routes:
        for outcome, count in sorted(route.outcomes.items()):
            notice("records_finished", operation=route.name, outcome=outcome.value, count=count)
    for topic, count in sorted(pipeline.refused.items()):
        notice("records_refused", topic=topic, count=count)
    notice("worker_stopped")


async def _open_filter(settings: Settings, ledger: PostgresLedger) -> Filter | None:
    if settings.redis.url is None:
        return None
    which = await read_which(ledger)
    return Filter(
        settings.redis.url.get_secret_value(),
        timeout=settings.redis.timeout.total_seconds(),
        ledger_id=which.id,
        key=which.filter_key,
        now=which.now,
        alive=ledger.session.safe,
        notice=notice,
    )


async def _until_over(worker: Worker, consumer: Consumer, tasks: Tasks, stop: asyncio.Event, until_idle: bool) -> None:
    """Wait for a signal, for the end of the backlog if that was asked for, or for a task that died: it is raised."""
    over: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait()), tasks.failed]
    if until_idle:
        over.append(asyncio.ensure_future(_idle(worker, consumer)))
    try:
        done, _ = await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
    finally:
        for future in over:
            if future is not tasks.failed:
                future.cancel()


async def _watch(pipeline: Pipeline, consumer: Consumer, overdue_limit: int) -> None:
    """Watch progress, not liveness; raises, and so restarts the worker, when it cannot go on by itself."""
    while True:
        await asyncio.sleep(1.0)
        if not consumer.reading:
            raise OnceboxError("the Kafka client's fetch task died while everything else looked alive: restarting")
        if pipeline.overdue > overdue_limit:
            raise OnceboxError(f"{pipeline.overdue} handlers ignore their timeout: restarting")


async def _idle(worker: Worker, consumer: Consumer) -> None:
    await worker.assigned.wait()
    while True:
        try:
            ends = await consumer.end_offsets(consumer.lanes)
            break
        except ServiceUnavailable as error:
            notice("end_offsets_unknown", error=str(error), next="asking again")
    await worker.reach({(lane.topic, lane.partition): end for lane, end in ends.items()})


def effective_handlers(settings: Settings, registry: Registry) -> list[Handler]:
    """The registered handlers with the settings of their scopes."""
    if not registry.handlers:
        raise ConfigError("the registry has no handlers", advice="decorate a function with @registry.handler(…)")
    settings.refuse_unknown_scopes(registry.scopes)
    handlers = []
    for handler in registry.handlers:
        found = settings.scope(handler.scope.name)
        scope = dataclasses.replace(
            handler.scope, ttl=found.ttl or handler.scope.ttl, audit_ttl=found.audit_ttl or handler.scope.audit_ttl
        )
        handlers.append(dataclasses.replace(handler, scope=scope))
    return handlers


def scope_secrets(settings: Settings, handlers: list[Handler]) -> Mapping[str, bytes]:
    """Secrets of scopes with private keys."""
    found = {h.scope.name: settings.scope(h.scope.name).secret for h in handlers}
    return {name: secret.get_secret_value().encode() for name, secret in found.items() if secret is not None}


async def refuse_missing_topics(settings: Settings, handlers: list[Handler]) -> None:
    """A missing topic would hold the client's start for a whole request timeout, and then say little."""
    topics = {topic for handler in handlers for topic in handler.topics}
    async with open_topics(settings.kafka) as admin:
        missing = await admin.missing(topics)
    if missing:
        raise ConfigError(
            f"Kafka has no topic {', '.join(missing)}",
            advice="create it with the number of partitions you want, or correct the handler's topic",
        )


@contextlib.asynccontextmanager
async def shared_resources(registry: Registry) -> AsyncIterator[Any]:
    """What the registry's lifespans opened: the one value, or the merged mappings of several."""
    async with contextlib.AsyncExitStack() as opened:
        found = [
            await opened.enter_async_context(contextlib.asynccontextmanager(lifespan)())
            for lifespan in registry.lifespans
        ]
        if len(found) <= 1:
            yield found[0] if found else None
        else:
            yield {name: value for each in found for name, value in dict(each).items()}


def _first_probe(handler: Handler) -> float:
    first: Any = handler.reconcile.first
    return float(first.total_seconds())


def _message_log(item: Item) -> Any:
    log = structlog.stdlib.get_logger("oncebox.handler")
    record = item.record
    fields = {
        "operation": item.route.name,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }
    return log.bind(**fields) if item.route.private else log.bind(**fields, key=item.key.decode())


def _listen(stop: asyncio.Event) -> None:
    """The first signal drains; a second one exits now."""

    def told() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told)
