"""Dry runs: what a replay would do, told record by record, without a session, a claim or a write."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from worker.app.choosing import Plan, refuse_unread, wanted
from worker.app.forgetting import may_be_forgotten, remember
from worker.app.handlers import effective_handlers, scope_secrets
from worker.app.jobbing import Show
from worker.app.replaying import explain_empty, explain_gap
from worker.engine.classify import Classifier, Read, read_records
from worker.engine.intake import Intake
from worker.engine.routes import Route, prepare
from worker.kafka.reader import Reader, open_reader
from worker.ledger.connect import HOT, Line
from worker.ledger.desk import open_desk
from worker.ledger.looking import Looking
from worker.observe.logs import notice
from worker.rules.lanes import Lane
from worker.rules.registry import Registry
from worker.rules.tally import FINE, RUN, Tally
from worker.settings import Settings

# Large enough that the look-up's round trip is shared by many, small enough to be looked up while the next is decoded.
_BATCH = 2000


@dataclass(frozen=True, slots=True)
class Glass:
    """What one looks through: the handlers' rules and the ledger's rows."""

    settings: Settings
    routes: Sequence[Route]
    intake: Intake
    looking: Looking
    line: Line
    queries: Mapping[str, str]


@asynccontextmanager
async def open_glass(settings: Settings, registry: Registry) -> AsyncIterator[Glass]:
    """Everything a classification needs; nothing is registered, an operation nobody ran yet has no entries."""
    handlers = effective_handlers(settings, registry)
    secrets = scope_secrets(settings, handlers)
    async with open_desk(settings.database, options=HOT) as desk:
        looking = Looking(desk.line, desk.queries)
        numbers = await looking.operations()
        routes = [prepare(h, numbers.get(h.name, -n), {}, secrets) for n, h in enumerate(handlers, 1)]
        yield Glass(settings, routes, Intake(routes), looking, desk.line, desk.queries)


async def forecast(settings: Settings, registry: Registry, plan: Plan, show: Show) -> dict[str, Any] | None:
    """Classify every record of a window; None when there is none."""
    refuse_unread(registry, plan.topic)
    began = time.monotonic()
    async with open_reader(settings.kafka, plan.topic, notice) as reader, open_glass(settings, registry) as glass:
        spans = await reader.spans(plan.window, group=settings.kafka.group)
        gaps = [gap for span in spans if (gap := explain_gap(plan.topic, span)) is not None]
        for gap in gaps:
            show.warn(gap)
        if not any(span.start < span.end for span in spans):
            show.nothing(explain_empty(plan, spans, settings.kafka.group))
            return None
        reader.begin(spans)
        show.begin(0, plan.topic, sum(span.end - span.start for span in spans))
        lanes = {span.partition: Lane(plan.topic, span.partition, span.start) for span in spans}
        if not plan.run_beyond_ttl:
            await remember(glass.looking, plan.topic, glass.routes, lanes.values())
        classifier = Classifier(
            glass.looking.look_at,
            lambda item: may_be_forgotten(lanes[item.record.partition], item),
            crash_cap=settings.engine.crash_cap,
        )
        tally, left_out = await _classify(reader, glass, plan, classifier, show)
    return {
        "dry_run": True,
        "topic": plan.topic,
        **tally.as_json(),
        "left_out": left_out,
        "rate": plan.rate,
        "estimate_seconds": None if plan.rate is None else round(tally.classes[RUN] / plan.rate, 1),
        "seconds": round(time.monotonic() - began, 3),
        "unread": [span.partition for span in spans if span.unread],
        "gone": gaps,
    }


async def _classify(reader: Reader, glass: Glass, plan: Plan, classifier: Classifier, show: Show) -> tuple[Tally, int]:
    tally = Tally()
    left_out = done = 0
    looks_inside = plan.handler is not None or bool(plan.tenants or plan.exclude_tenants)
    waiting: tuple[list[Read], asyncio.Task[list[str]]] | None = None
    try:
        async for _, records, _ in reader.everything(most=_BATCH):
            inside = [r for r in records if plan.window.admits(r)] if plan.window.timed else records
            reads = read_records(glass.intake, inside)
            if looks_inside:
                reads = [read for read in reads if wanted(plan, read)]
            left_out += len(records) - len(reads)
            if waiting is not None:
                _count(tally, waiting[0], await waiting[1])
            # Looked up while the next records are fetched and decoded; judged one batch after another, in order.
            waiting = (reads, asyncio.create_task(classifier.classify(reads)))
            done += len(records)
            show.progress(done, tally.classes)
        if waiting is not None:
            _count(tally, waiting[0], await waiting[1])
    finally:
        if waiting is not None:
            waiting[1].cancel()
    return tally, left_out


def _count(tally: Tally, reads: Sequence[Read], classes: Sequence[str]) -> None:
    """Count a batch: most of it is of few kinds, and only problems need their places."""
    kinds = Counter([(class_, read.route, read.tenant) for read, class_ in zip(reads, classes, strict=True)])
    for (class_, route, tenant), records in kinds.items():
        tally.count(class_, None if route is None else route.name, tenant, records)
    if any(class_ not in FINE for class_, _, _ in kinds):
        for read, class_ in zip(reads, classes, strict=True):
            if class_ not in FINE:
                tally.note(class_, read.place)
