"""One worker of a consumer group."""

import asyncio
import contextlib
import gc
from typing import Any

from worker.app.duties import engine_duties
from worker.app.handlers import effective_handlers, refuse_missing_topics
from worker.app.housekeeping import house_duties, topic_lister
from worker.app.observing import Observing, observing
from worker.app.opening import Engine, open_engine
from worker.app.process import run_until_signalled
from worker.engine.janitor import Janitor
from worker.engine.pipeline import Pipeline
from worker.engine.worker import Pace, Worker
from worker.errors import OnceboxError, ServiceUnavailable
from worker.kafka.consumer import Consumer
from worker.kafka.holds import Holds
from worker.kafka.places import Places
from worker.observe.logs import notice
from worker.rules.registry import Registry
from worker.settings import Settings


def run(settings: Settings, registry: Registry, *, until_idle: bool = False) -> int:
    """Run one worker until it is told to stop; the exit code."""

    async def work(stop: asyncio.Event) -> int:
        await serve(settings, registry, stop=stop, until_idle=until_idle)
        return 0

    return run_until_signalled(settings, work)


async def serve(settings: Settings, registry: Registry, *, stop: asyncio.Event, until_idle: bool = False) -> None:
    """Run one worker in this event loop until `stop` is set, or the backlog is done; raises what killed it."""
    async with observing(settings, notice, stop) as seen:
        await refuse_missing_topics(settings, effective_handlers(settings, registry))
        seen.announce()
        watch = seen.stores.watch if seen.on else None
        async with open_engine(settings, registry, seen.notice, watch=watch) as engine:
            seen.watch_engine(engine)
            await _Member(engine).work(stop, seen, until_idle=until_idle)


class _Member:
    """The parts that feed an engine from a consumer group, and look after it."""

    def __init__(self, engine: Engine) -> None:
        settings, ledger, pipeline, notice = engine.settings, engine.ledger, engine.pipeline, engine.notice
        limits, kafka = settings.engine, settings.kafka
        self._engine = engine
        pace = Pace(2 * limits.in_flight, limits.in_flight_bytes, kafka.fetch_records, limits.drain.total_seconds())
        self._worker = Worker(pipeline, pace, beat=ledger.session.beat, notice=notice)
        self._reads = {t: {r.plan.operation for r in engine.routes if t in r.handler.topics} for t in engine.topics}
        places = Places(group=kafka.group, start=kafka.start, operations=self._reads, feeds=ledger.feeds, notice=notice)
        self._consumer = Consumer(settings, engine.topics, self._worker, places, notice)
        self._worker.consumer = self._consumer
        self._janitor = Janitor([*engine_duties(engine), *house_duties(settings, ledger, notice)], notice)
        self._holds = Holds(self._consumer, kafka.group, ledger.feeds, notice)
        engine.orders.reader = self._consumer

    async def work(self, stop: asyncio.Event, seen: Observing, *, until_idle: bool) -> None:
        engine, worker, consumer, notice = self._engine, self._worker, self._consumer, self._engine.notice
        kafka, limits, tasks = engine.settings.kafka, engine.settings.engine, engine.tasks
        tasks.spawn(worker.tick(), "tick")
        await self._register_feeds()
        try:
            await consumer.start()
            _freeze()
            reading = tasks.spawn(worker.read(), "read")
            seen.watch_member(engine, worker, consumer, self._janitor.duties)
            tasks.spawn(worker.commit(), "commit")
            self._janitor.start(tasks)
            every = limits.sample_every.total_seconds()
            tasks.spawn(worker.sample(engine.ledger.feeds, kafka.group, self._reads, every), "sample")
            tasks.spawn(self._holds.watch(), "holds")
            notice("worker_started", group=kafka.group, session=engine.ledger.session.id, topics=engine.topics)
            tasks.spawn(_watch(engine.pipeline, consumer, limits.overdue_limit), "watchdog")
            await self._until_over(stop, until_idle=until_idle)
            notice("worker_stopping", next=f"handlers have {limits.drain.total_seconds():g} s to end")
            await worker.stop()
            await asyncio.wait([reading], timeout=5)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(consumer.commit(), 5)
        finally:
            await consumer.stop()
        self._account()

    async def _register_feeds(self) -> None:
        """Every partition, whoever reads it: none of what its records may need is pruned before they were read."""
        listed = await topic_lister(self._engine.settings)(self._engine.topics)
        for topic, found in listed.items():
            group, partitions = self._engine.settings.kafka.group, range(found.partitions)
            await self._engine.ledger.feeds.register(group, topic, partitions, self._reads[topic])

    async def _until_over(self, stop: asyncio.Event, *, until_idle: bool) -> None:
        """Wait for a signal, the end of the backlog if that was asked for, or a task that died: its error is raised."""
        failed = self._engine.tasks.failed
        over: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait()), failed]
        if until_idle:
            over.append(asyncio.ensure_future(self._idle()))
        try:
            done, _ = await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                future.result()
        finally:
            for future in over:
                if future is not failed:
                    future.cancel()

    async def _idle(self) -> None:
        await self._worker.assigned.wait()
        await self._given_something()
        while True:
            try:
                ends = await self._consumer.end_offsets(self._consumer.lanes)
                break
            except ServiceUnavailable as error:
                self._engine.notice("end_offsets_unknown", error=str(error), next="asking again")
        held = await self._worker.reach({(lane.topic, lane.partition): end for lane, end in ends.items()})
        if held:
            raise OnceboxError("\n".join(f"partition {lane} is held: {lane.held}" for lane in held))

    async def _given_something(self) -> None:
        """Wait for partitions: a first assignment without any may only have come before the topic was known.

        Not for ever: others of the group may have them all.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._engine.settings.kafka.session_timeout.total_seconds()
        while True:
            if self._consumer.lanes or loop.time() >= deadline:
                return
            await asyncio.sleep(0.1)

    def _account(self) -> None:
        notice = self._engine.notice
        for route in self._engine.routes:
            for topic, outcomes in sorted(route.outcomes.items()):
                for outcome, count in sorted(outcomes.items()):
                    notice("records_finished", topic=topic, operation=route.name, outcome=outcome.value, count=count)
        for topic, count in sorted(self._engine.pipeline.counts.refused.items()):
            notice("records_refused", topic=topic, count=count)
        notice("worker_stopped")


def _freeze() -> None:
    """What was made until now lives as long as the process: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


async def _watch(pipeline: Pipeline, consumer: Consumer, overdue_limit: int) -> None:
    """Watch progress, not liveness; raises, and so restarts the worker, when it cannot go on by itself."""
    while True:
        await asyncio.sleep(1.0)
        if not consumer.reading:
            raise OnceboxError("the Kafka client's fetch task died while everything else looked alive: restarting")
        if pipeline.overdue > overdue_limit:
            raise OnceboxError(f"{pipeline.overdue} handlers ignore their timeout: restarting")
