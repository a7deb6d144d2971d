"""The box: a whole oncebox in memory, for the tests of handlers. Its engine is the one that runs in production."""

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from worker.errors import UsageError
from worker.rules.context import Verdict
from worker.rules.durations import duration, format_duration
from worker.rules.handlers import Handler
from worker.rules.outgoing import Outgoing
from worker.rules.record import Record
from worker.rules.registry import Registry
from worker.settings.engine import EngineSettings
from worker.testing.clock import VirtualClock
from worker.testing.delivered import Delivered, EntryView
from worker.testing.deliveries import CrashPoint, Deliveries, Delivery
from worker.testing.drafts import Headers, draft
from worker.testing.effects import Effects
from worker.testing.jumping import Jumping
from worker.testing.logbook import Log, Logged
from worker.testing.memory.database import MemoryDatabase
from worker.testing.memory.ledger import MemoryLedger
from worker.testing.memory.tables import Tables
from worker.testing.opened import closed, opened
from worker.testing.outbox import Outbox
from worker.testing.process import Keeper, Process, World, start
from worker.testing.topics import Topics
from worker.testing.viewing import view_delivery, view_entry

T = TypeVar("T")
_LIFESPANS: Any = object()
# So many times the longest timeout and the hold, in virtual time: a record without an outcome then never gets one.
_LONGEST = 20


class Box:
    """Delivers records to handlers: `async with Box(registry) as box: await box.deliver(charge, {...})`.

    While a call of the box is awaited, time jumps from timer to timer; between calls it flows as usual. `settings` are
    the engine's (`lease="3s"`, `hold="5s"`, `crash_cap=2`, …); `resources` replaces what the registry's lifespans open.
    """

    def __init__(
        self, registry: Registry, *, clock: VirtualClock | None = None, resources: Any = _LIFESPANS, **settings: Any
    ) -> None:
        self.registry = registry
        self.settings = EngineSettings(**settings)
        self.outbox = Outbox()
        self.effects = Effects()
        self.database = MemoryDatabase()
        self.notices: list[tuple[str, dict[str, Any]]] = []
        self.logged: list[Logged] = []
        self.kept_open_by: object = None
        self._given_clock = clock
        self._resources = resources
        self._asking = 0
        self._open = False
        self._deliveries = Deliveries()

    async def __aenter__(self) -> Self:
        self._time = Jumping.of(asyncio.get_running_loop(), self._given_clock)
        self.clock = self._time.clock
        self.tables = Tables(self.clock)
        self._topics = Topics(self.registry.topics)
        self._keeper = Keeper(self._ledger("sweep"), every=self.settings.settle_every.total_seconds())
        async with AsyncExitStack() as closing:
            closing.callback(self._time.leave, self._handling)
            self._time.handling.append(self._handling)
            closing.push_async_callback(self._keeper.close)
            await self._keeper.open()
            self._process = await self._start()
            closing.push_async_callback(self._close_process)
            closing.callback(closed, self)
            opened(self)
            self._closing = closing.pop_all()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close at once: what still runs is cancelled and leaves nothing behind."""
        self._open = False
        await self._closing.aclose()

    async def deliver(
        self,
        to: Handler | str,
        payload: Any = None,
        *,
        headers: Headers = (),
        kafka_key: str | bytes | None = None,
        partition: int = 0,
        crash: CrashPoint | None = None,
    ) -> Delivered:
        """Put a record into the handler's topic, or a named one, and wait for its outcome.

        Retries and waits that the engine keeps in line are waited for, in virtual time. With `crash` the process dies
        at that point, its session lapses and is settled; `restart` brings the next process.
        """
        topic = to if isinstance(to, str) else to.topics[0]
        if topic not in self.registry.topics:
            raise UsageError(f"no handler of this box reads {topic!r}")
        timestamp = int(self.clock.date(self.clock()).timestamp() * 1000)
        record = draft(topic, payload, headers=headers, kafka_key=kafka_key, partition=partition, timestamp=timestamp)
        return await self._put(record, crash)

    async def redeliver(self, delivered: Delivered, *, crash: CrashPoint | None = None) -> Delivered:
        """Put the same key, value and headers into the topic once more, as a producer or provider does that retries."""
        return await self._put(delivered.record, crash)

    async def deliver_twice(self, to: Handler | str, payload: Any = None, **how: Any) -> tuple[Delivered, Delivered]:
        """Put the same record twice into the topic, one behind the other, before either is handled."""
        first, second = await asyncio.gather(self.deliver(to, payload, **how), self.deliver(to, payload, **how))
        return first, second

    async def advance(self, length: str | float | timedelta) -> None:
        """Let that much time pass; everything that falls due on the way happens when it is due."""
        await self._drive(asyncio.sleep(duration(length).total_seconds()))

    async def restart(self, *, crash: CrashPoint | None = None) -> list[Delivered]:
        """Start the next process, which reads again what was not committed; what became of those records.

        A process that lives is stopped as on SIGTERM first. With `crash` the new one dies over its first record.
        """
        if not self.dead:
            await self._drive(self._process.stop())
        await self._close_process()
        again = [self._deliveries.again(record) for record in self.uncommitted]
        if crash is not None:
            if not again:
                raise UsageError("every record is committed: the next process has nothing to die over")
            again[0].crash = crash
        self._process = await self._start()
        return [await self._decided(delivery) for delivery in again]

    async def end_session(self) -> None:
        """Let the rest of the group end the living process's session and settle its claims, as after a long pause.

        The process goes on, notices at its next renewal and opens a new session; what it has running ends late.
        """
        await self._drive(self._keeper.end(self._process.ledger.session.id))

    async def reconcile(self, handler: Handler, *, key: str, tenant: str | None = None) -> Verdict:
        """Ask the handler's reconciler about an entry in doubt, and return its verdict; nothing is settled by it."""
        if handler.look_up is None:
            raise UsageError(f"{handler.name} has no reconciler")
        id_ = self._id(handler, key, tenant)
        entry, delivery = self.tables.entries.get(id_), self._deliveries.last(id_)
        if entry is None or delivery is None or id_ not in self.tables.doubts:
            raise UsageError(f"the entry {key!r} of {handler.name} is not in doubt")
        self._asking += 1
        try:
            return await self._drive(handler.look_up(self._process.context(delivery.record, entry)))
        finally:
            self._asking -= 1

    def entry(self, handler: Handler, *, key: str, tenant: str | None = None) -> EntryView | None:
        """What the ledger remembers about a key; None if nothing."""
        entry = self.tables.entries.get(self._id(handler, key, tenant))
        return None if entry is None else view_entry(self.tables, entry)

    def now(self, delivered: Delivered) -> Delivered:
        """What has become of the record by now: a parked one may have run since."""
        return view_delivery(self._deliveries.of(delivered.record), self.tables, self.outbox)

    @property
    def dead(self) -> bool:
        """Whether the process has died; `restart` brings the next one."""
        return self._process.life.ended

    @property
    def uncommitted(self) -> list[Record]:
        """Records that the next process would read again."""
        return self._topics.uncommitted()

    @property
    def parked(self) -> list[Record]:
        """Records that are kept because they cannot be finished now."""
        return [row.record for row in self.tables.parked.values()]

    @property
    def dead_letters(self) -> list[Outgoing]:
        return self.outbox.dead_letters

    def _handling(self) -> object:
        return self._asking or self._process.pipeline.running()

    def _ledger(self, role: str) -> MemoryLedger:
        return MemoryLedger(
            self.tables,
            lease=self.settings.lease.total_seconds(),
            crash_cap=self.settings.crash_cap,
            first_probe=0.0,
            database=self.database,
            role=role,
        )

    async def _start(self) -> Process:
        world = World(
            handlers=self.registry.handlers,
            settings=self.settings,
            topics=self._topics,
            outbox=self.outbox,
            deliveries=self._deliveries,
            effects=self.effects,
            notice=lambda event, **fields: self.notices.append((event, fields)),
            log=lambda item: Log(self.logged, {"operation": item.route.name, "offset": item.record.offset}),
        )
        async with AsyncExitStack() as shared:
            resources = self._resources
            if resources is _LIFESPANS:
                from worker.app.handlers import shared_resources

                resources = await shared.enter_async_context(shared_resources(self.registry))
            process = await start(world, self._ledger("run"), resources)
            self._shared = shared.pop_all()
        return process

    async def _close_process(self) -> None:
        await self._process.close()
        await self._shared.aclose()

    async def _put(self, record: Record, crash: CrashPoint | None) -> Delivered:
        if self.dead:
            raise UsageError("the process is dead, and nothing reads the topic: await box.restart() first")
        return await self._decided(self._deliveries.add(self._topics.append(record), crash))

    async def _decided(self, delivery: Delivery) -> Delivered:
        planned = delivery.crash
        await self._drive(self._wait_for(delivery))
        if self.dead and self._open:
            await self._drive(self._keeper.settle(self._process.ledger.session.id))
        seen = view_delivery(delivery, self.tables, self.outbox)
        if planned is not None and delivery.crash is planned:
            delivery.crash = None
            raise AssertionError(f"the crash point {planned!r} was not reached: the record's outcome is {seen.outcome}")
        return seen

    async def _wait_for(self, delivery: Delivery) -> None:
        failed = self._process.tasks.failed
        limit = _LONGEST * (max(handler.timeout for handler in self.registry.handlers) + self.settings.hold)
        await asyncio.wait(
            (delivery.decided, failed), timeout=limit.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
        self._time.progress()
        if failed.done():
            failed.result()
        if not delivery.decided.done():
            raise AssertionError(f"offset {delivery.record.offset} has no outcome after {format_duration(limit)}")

    async def _drive(self, work: Awaitable[T]) -> T:
        answer = await self._time.drive(work)
        if self._open:
            await self._time.drive(self._time.calm())
        return answer

    def _id(self, handler: Handler, key: str, tenant: str | None) -> bytes:
        if handler not in self.registry.handlers:
            raise UsageError(f"{handler.name} is not registered in this box")
        return self._process.route(handler).identity.entry_id(None if tenant is None else tenant.encode(), key.encode())
