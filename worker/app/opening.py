"""An engine without a source of records: ledger, session, handlers, publisher and pipeline, opened in order.

Whoever feeds it (a consumer group, a replay, a redrive, the janitor) takes it from here. Each is a session of its own.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from worker.app.handlers import effective_handlers, scope_secrets, shared_resources
from worker.engine.calling import Caller
from worker.engine.evidence import Settler
from worker.engine.intake import Intake
from worker.engine.items import CURRENT, Item
from worker.engine.letters import Letters
from worker.engine.orders import Orders
from worker.engine.pipeline import Limits, Outside, Pipeline
from worker.engine.ports import Ledger, Notice
from worker.engine.ports import Publisher as Publishes
from worker.engine.routes import Route, identity_text, prepare
from worker.engine.tasks import Tasks
from worker.engine.tracing import TracedCaller
from worker.filter.filter import Filter
from worker.kafka.publisher import Publisher
from worker.kafka.readback import ReadBack
from worker.ledger.clock import clock
from worker.ledger.ledger import PostgresLedger
from worker.ledger.which import read_which
from worker.observe.traces import Spans, find_tracer
from worker.rules.handlers import Handler
from worker.rules.registry import Registry
from worker.settings import Settings

# By the name of a store: who is told of each round trip to it.
Watching = Callable[[str], Callable[[str, float, bool], None]]


@dataclass(frozen=True, slots=True)
class Engine:
    """What is open while an engine runs."""

    settings: Settings
    ledger: PostgresLedger
    routes: Sequence[Route]
    intake: Intake
    pipeline: Pipeline
    orders: Orders
    publisher: Publisher
    letters: Letters
    originals: ReadBack
    caller: Caller
    tasks: Tasks
    notice: Notice
    filter: Filter | None = None

    @property
    def topics(self) -> list[str]:
        """What the handlers read."""
        return sorted({topic for route in self.routes for topic in route.handler.topics})


@contextlib.asynccontextmanager
async def open_engine(
    settings: Settings,
    registry: Registry,
    notice: Notice,
    *,
    role: str = "run",
    watch: Watching | None = None,
    publishing: Callable[[Publishes], Publishes] = lambda publisher: publisher,
) -> AsyncIterator[Engine]:
    """Open everything a pipeline works with; closed in the opposite order, the session last.

    `publishing` may put something between the pipeline and its publisher.
    """
    handlers = effective_handlers(settings, registry)
    secrets = scope_secrets(settings, handlers)
    identities = {h.name: identity_text(h, secrets) for h in handlers}
    ledger = make_ledger(settings, handlers, notice, role=role, watch=watch)
    async with contextlib.AsyncExitStack() as closing:
        await ledger.open()
        closing.push_async_callback(ledger.close)
        operations, topics = await ledger.register(handlers, group=settings.kafka.group, identities=identities)
        routes = [prepare(h, operations[h.name], topics, secrets) for h in handlers]
        resources = await closing.enter_async_context(shared_resources(registry))
        caller = _caller(settings, ledger, routes, resources, notice)
        closing.callback(caller.close)
        redis = await _open_filter(settings, ledger, notice, watch)
        if redis is not None:
            closing.push_async_callback(redis.close)
        originals = ReadBack(settings.kafka, notice)
        closing.push_async_callback(originals.close)
        tasks = Tasks()
        closing.push_async_callback(tasks.close)
        publisher = Publisher(settings.kafka, notice)
        closing.push_async_callback(publisher.close)
        letters = Letters(group=settings.kafka.group, prefix=settings.kafka.dead_letter_prefix)
        intake = Intake(routes)
        parts = Ledger(ledger.session, ledger.claims, ledger.finals, ledger.parking, ledger.transactions, redis)
        outside = Outside(intake, parts, publishing(publisher), letters, caller, tasks, clock, notice)
        pipeline = Pipeline(outside, _limits(settings))
        orders = Orders(ledger.orders, pipeline.wishes, routes, group=settings.kafka.group, notice=notice)
        # Before the first record: one that is skipped because it kills workers must not start once more.
        await orders.once()
        tasks.spawn(orders.watch(), "orders")
        yield Engine(
            settings,
            ledger,
            routes,
            intake,
            pipeline,
            orders,
            publisher,
            letters,
            originals,
            caller,
            tasks,
            notice,
            redis,
        )


def make_ledger(
    settings: Settings, handlers: Sequence[Handler], notice: Notice, *, role: str, watch: Watching | None = None
) -> PostgresLedger:
    """The ledger of a process that runs these handlers; not open yet."""
    return PostgresLedger(
        settings.database,
        lease=settings.engine.lease.total_seconds(),
        crash_cap=settings.engine.crash_cap,
        longest_timeout=max((h.timeout.total_seconds() for h in handlers), default=0.0),
        # Due at once: whoever has the handler puts it off until its first probe, and that need not be us.
        first_probe=0.0,
        notice=notice,
        role=role,
        watch=None if watch is None else watch("postgres"),
    )


def _caller(
    settings: Settings, ledger: PostgresLedger, routes: Sequence[Route], resources: Any, notice: Notice
) -> Caller:
    engine = settings.engine
    parts: dict[str, Any] = {
        "resources": resources,
        "result_limit": engine.result_limit,
        "threads": min(engine.concurrency, 64),
        "clock": clock,
        "log": _message_log,
        "settle": Settler(routes, ledger.doubts, result_limit=engine.result_limit, clock=clock, notice=notice),
    }
    tracer = find_tracer(notice)
    if tracer is None:
        return Caller(ledger.session, ledger.transactions, **parts)
    spans = Spans(tracer, group=settings.kafka.group)
    return TracedCaller(ledger.session, ledger.transactions, spans=spans, **parts)


def _limits(settings: Settings) -> Limits:
    engine = settings.engine
    return Limits(
        in_flight=engine.in_flight,
        concurrency=engine.concurrency,
        # While one runs on a connection another waits for it: the commit of the first begins its transaction.
        transactions=2 * settings.database.transaction_connections,
        claim_batch=engine.claim_batch,
        claims_in_flight=engine.claims_in_flight,
        hold=engine.hold.total_seconds(),
        crash_cap=engine.crash_cap,
    )


async def _open_filter(
    settings: Settings, ledger: PostgresLedger, notice: Notice, watch: Watching | None
) -> Filter | None:
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
        watch=None if watch is None else watch("redis"),
    )


def _message_log(item: Item) -> Any:
    return structlog.stdlib.get_logger("oncebox.handler").bind(**_fields(item))


def message_fields() -> dict[str, Any] | None:
    """What log lines say about the message that is handled where they are written; None outside of handlers."""
    item = CURRENT.get()
    # A task that a handler started may outlive it: by then there is nothing to say.
    return None if item is None or item.finished else _fields(item)


def _fields(item: Item) -> dict[str, Any]:
    record = item.record
    fields = {
        "operation": item.route.name,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }
    return fields if item.route.private else {**fields, "key": item.key.decode()}
