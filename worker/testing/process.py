"""One simulated worker process: the real engine, wired to what is in memory."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.engine.evidence import Settler
from worker.engine.intake import Intake
from worker.engine.items import Item
from worker.engine.janitor import Duty, Janitor, claim_duties, parked_duty
from worker.engine.letters import Letters
from worker.engine.pipeline import Limits, Outside
from worker.engine.ports import Notice
from worker.engine.reconciling import Reconciling
from worker.engine.reporting import Means
from worker.engine.routes import Route, identity_text, prepare
from worker.engine.worker import Pace, Worker
from worker.rules.context import Context
from worker.rules.handlers import Handler
from worker.rules.record import Record
from worker.settings.engine import EngineSettings
from worker.testing.deliveries import Deliveries, Fate
from worker.testing.effects import Effects
from worker.testing.life import Life, MortalTasks
from worker.testing.memory.ledger import MemoryLedger
from worker.testing.memory.tables import Entry
from worker.testing.outbox import DEAD_LETTERS, Outbox
from worker.testing.topics import MemoryConsumer, Topics
from worker.testing.watching import WatchedCaller, WatchedPipeline

GROUP = "box"


@dataclass(frozen=True, slots=True)
class World:
    """What outlives a process."""

    handlers: Sequence[Handler]
    settings: EngineSettings
    topics: Topics
    outbox: Outbox
    deliveries: Deliveries
    effects: Effects
    notice: Notice
    log: Callable[[Item], Any]


class Process:
    """The engine from start to stop, or to its death."""

    def __init__(self, world: World, ledger: MemoryLedger, routes: Sequence[Route], resources: Any) -> None:
        settings, clock = world.settings, ledger.tables.clock
        self.life = Life()
        self.tasks = MortalTasks(self.life)
        self._deliveries = world.deliveries
        self.ledger = ledger
        self._intake = Intake(routes)
        self._routes = {route.name: route for route in routes}
        fate = Fate(world.deliveries, self.life)
        watch: Mapping[str, Any] = {"fate": fate, "deliveries": world.deliveries}
        self._caller = WatchedCaller(
            ledger.session,
            ledger.transactions,
            resources=resources,
            result_limit=settings.result_limit,
            threads=8,
            clock=clock,
            log=world.log,
            effects=world.effects,
            settle=Settler(routes, ledger.doubts, result_limit=settings.result_limit, clock=clock, notice=world.notice),
            **watch,
        )
        letters = Letters(group=GROUP, prefix=DEAD_LETTERS)
        outside = Outside(
            self._intake, ledger.parts, world.outbox, letters, self._caller, self.tasks, clock, world.notice
        )
        self.pipeline = WatchedPipeline(outside, _limits(settings), after=self._commit, **watch)
        pace = Pace(2 * settings.in_flight, settings.in_flight_bytes, 500, settings.drain.total_seconds())
        self._worker = Worker(self.pipeline, pace, beat=ledger.session.beat, notice=world.notice)
        self._worker.consumer = self._consumer = MemoryConsumer(world.topics, self._worker.lanes_assigned)
        every, hold = settings.settle_every.total_seconds(), settings.hold.total_seconds()
        parked = parked_duty(ledger.parking, self.pipeline.take_parked, routes, every=every, hold=hold)
        doubts = Duty("doubts", every / 5, self._reconciling(world, routes, letters).once)
        janitor = Janitor([*claim_duties(ledger, every), parked, doubts], world.notice)
        self.tasks.spawn(ledger.session.keep(), "session")
        self.tasks.spawn(self._tick(), "tick")
        janitor.start(self.tasks)
        self._reading = self.tasks.spawn(self._worker.read(), "read")

    def _reconciling(self, world: World, routes: Sequence[Route], letters: Letters) -> Reconciling:
        ledger, settings = self.ledger, world.settings
        means = Means(
            routes=routes,
            doubts=ledger.doubts,
            claims=ledger.claims,
            parking=ledger.parking,
            publisher=world.outbox,
            originals=world.topics,
            letters=letters,
            caller=self._caller,
            notice=world.notice,
        )
        grace, clock = settings.grace.total_seconds(), ledger.tables.clock
        return Reconciling(means, self.tasks, grace=grace, result_limit=settings.result_limit, clock=clock)

    def route(self, handler: Handler) -> Route:
        return self._routes[handler.name]

    def context(self, record: Record, entry: Entry) -> Context:
        """What a reconciler is told about an entry, by the record that carried its key."""
        item = Item(record, None)
        self._intake.read(item)
        item.fence, item.attempts, item.crashes = entry.fence, entry.attempts, entry.crashes
        return self._caller.context(item)

    async def stop(self) -> None:
        """Stop as on SIGTERM: handlers may end within the drain time, outcomes are made durable, the session ends."""
        await self._worker.stop()
        self._consumer.close()
        await asyncio.wait([self._reading])
        await self.ledger.close()
        await self.close()

    async def close(self) -> None:
        """Let go of everything, at once."""
        self.life.end()
        self._deliveries.bury()
        await self.tasks.close()
        self._caller.close()

    def _commit(self) -> None:
        self._consumer.commit_now()

    async def _tick(self) -> None:
        while True:
            self.pipeline.tick()
            # Idle, there is no deadline to watch, and a test may want to pass many hours.
            await asyncio.sleep(0.1 if self.pipeline.busy or self.pipeline.open_claims else 1.0)


async def start(world: World, ledger: MemoryLedger, resources: Any) -> Process:
    """Open a session, register the operations and begin to read; scopes with private keys get a secret."""
    await ledger.open()
    private = {h.scope.name for h in world.handlers if h.scope.private_keys}
    secrets = {name: f"the secret of {name} in tests".encode() for name in private}
    identities = {h.name: identity_text(h, secrets) for h in world.handlers}
    operations, topics = await ledger.register(world.handlers, group=GROUP, identities=identities)
    routes = [prepare(h, operations[h.name], topics, secrets) for h in world.handlers]
    return Process(world, ledger, routes, resources)


class Keeper:
    """The rest of the group: it takes no records, but ends sessions that lapsed and settles their claims."""

    def __init__(self, ledger: MemoryLedger, *, every: float) -> None:
        self._ledger = ledger
        self._every = every
        self._tasks = MortalTasks(Life())

    async def open(self) -> None:
        await self._ledger.open()
        self._tasks.spawn(self._ledger.session.keep(), "keeper's session")

    async def end(self, session: int) -> None:
        """End a session and settle it at once, without waiting for its lease."""
        self._ledger.tables.sessions[session].ended_at = self._ledger.tables.clock()
        await self._ledger.settling.settle()

    async def settle(self, session: int) -> None:
        """Go round until the session has ended and none of its claims is left."""
        tables, settling = self._ledger.tables, self._ledger.settling
        while tables.sessions[session].ended_at is None or any(s == session for s, _ in tables.open_claims.values()):
            await asyncio.sleep(self._every)
            await settling.end_lapsed()
            await settling.settle()

    async def close(self) -> None:
        await self._tasks.close()


def _limits(settings: EngineSettings) -> Limits:
    return Limits(
        in_flight=settings.in_flight,
        concurrency=settings.concurrency,
        transactions=settings.concurrency,
        claim_batch=settings.claim_batch,
        claims_in_flight=settings.claims_in_flight,
        hold=settings.hold.total_seconds(),
        crash_cap=settings.crash_cap,
    )
