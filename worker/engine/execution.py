"""Execution: when a claimed item starts, what may run beside it, and when it has had its time."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from worker.engine.calling import Caller, Committed, Ended
from worker.engine.holding import Holding
from worker.engine.items import CURRENT, Item, Stage
from worker.engine.ports import Lease, Notice
from worker.engine.runners import Runner, Runners
from worker.engine.tasks import Tasks
from worker.rules.lanes import Lane
from worker.rules.results import Result

# An entry that saw this many workers die runs alone from then on.
_DANGEROUS = 2
# How long after it was asked to stop a handler counts as overdue.
_PATIENCE = 5.0
_SUCCEEDED = (Result, Committed)
_CLAIMED, _RUNNING = Stage.CLAIMED, Stage.RUNNING


class Owner(Protocol):
    """Who holds the claims."""

    stopping: bool

    @property
    def open_claims(self) -> int: ...
    def give_back(self, item: Item) -> None: ...
    def unstarted(self) -> list[Item]: ...
    def started(self, item: Item) -> None: ...
    def reopen(self) -> None: ...
    def ended(self, item: Item, ended: Ended) -> None: ...


class Execution:
    """The handlers that run. Nothing starts unless the worker's lease is safe at that moment."""

    def __init__(
        self,
        owner: Owner,
        caller: Caller,
        holding: Holding,
        lease: Lease,
        tasks: Tasks,
        *,
        limit: int,
        transactions: int,
        clock: Callable[[], float],
        notice: Notice,
    ) -> None:
        self._owner = owner
        self._caller = caller
        self._holding = holding
        self._safe = lease.safe
        self._covers = lease.covers
        self._clock = clock
        self._notice = notice
        self._runners = Runners(self._run, tasks, limit=limit)
        # Runners of their own: waiting for a connection, they would be missing elsewhere.
        self._transacting = Runners(self._run, tasks, limit=min(limit, transactions))
        self._running: dict[Item, Runner] = {}
        self._gated: list[Item] = []
        self._alone: Item | None = None
        self._alone_queued = False  # handed to a runner that has not begun yet
        self.overdue = 0

    def __len__(self) -> int:
        return len(self._running)

    @property
    def crowd(self) -> int:
        """Items that cannot run before another one ends."""
        return self._runners.crowd + self._transacting.crowd

    @property
    def guarded(self) -> bool:
        """Whether a dangerous entry runs, or waits to run, alone: nothing else is claimed or started."""
        return self._alone is not None

    def start(self, item: Item) -> None:
        """Start a claimed item as soon as it may run."""
        route = item.route
        if item.crashes >= _DANGEROUS and item is not self._alone:
            self._isolate(item)
        elif self.guarded or (route.circuit.open and route.trial is not item):
            self._owner.give_back(item)
        elif not self._covers(item.fence):
            self._uncovered(item)
        elif route.limit is None:
            self._runners_of(item).start(item)
        elif route.running >= route.limit:
            route.backlog.append(item)
        else:
            route.running += 1
            self._runners_of(item).start(item)

    def start_all(self, items: Iterable[Item], fence: int) -> None:
        """Start items whose keys were claimed just now, for the first time and under one fence."""
        if self._alone is not None or not self._covers(fence):
            for item in items:
                self.start(item)
            return
        ready: list[Item] = []
        transacting: list[Item] = []
        for item in items:
            route = item.route
            if route.limit is None and not route.circuit.open:
                (transacting if route.transactional else ready).append(item)
            else:
                self.start(item)
        self._runners.start_all(ready)
        self._transacting.start_all(transacting)

    def tick(self) -> None:
        """Called several times a second: deadlines pass, a lease becomes safe again."""
        now = self._clock()
        overdue = 0
        for item, task in list(self._running.items()):
            if now < item.deadline:
                continue
            if not item.asked_at:
                item.asked_at = now
                self._notice("handler_timed_out", operation=item.route.name, next="asked to stop")
                task.cancel()
            elif now - item.asked_at > _PATIENCE:
                overdue += 1
        self.overdue = overdue
        if self._gated and self._safe():
            gated, self._gated = self._gated, []
            for item in gated:
                if item.stage is Stage.CLAIMED:
                    self.start(item)
        self.start_alone()

    def running(self, lanes: Sequence[Lane] | None = None) -> list[Item]:
        """Items whose handler runs, of these lanes or of all."""
        return [item for item in self._running if lanes is None or item.lane in lanes]

    def cancel(self, items: Iterable[Item]) -> None:
        """Ask running handlers to stop."""
        for item in items:
            task = self._running.get(item)
            if task is not None:
                task.cancel()

    def _runners_of(self, item: Item) -> Runners:
        return self._transacting if item.route.transactional else self._runners

    def _uncovered(self, item: Item) -> None:
        """Wait for the lease; a claim that was settled with an earlier session is given back: it never started."""
        if self._safe():
            self._owner.give_back(item)
        else:
            self._gated.append(item)

    async def _run(self, item: Item, runner: Runner) -> None:
        """What a runner does with one item. Never raises."""
        if item is self._alone:
            self._alone_queued = False
        if item.stage is not _CLAIMED or self._owner.stopping or not self._covers(item.fence):
            self._not_now(item)
            return
        route = item.route
        item.stage = _RUNNING
        item.asked_at = 0.0
        # What first waits for a connection or a thread is given its time when it has one.
        item.deadline = math.inf if route.waits_first else self._clock() + route.timeout
        if item.next is not None:
            self._owner.started(item)
        self._running[item] = runner
        handled = CURRENT.set(item)
        ended = await self._caller.call(item)
        CURRENT.reset(handled)
        if runner.cancelling():
            await _forget_cancels(runner)
        del self._running[item]
        if route.durations is not None:
            # Its deadline says when it began, also after waiting for a thread or a connection.
            route.durations.append(self._clock() - item.deadline + route.timeout)
        if not route.circuit.calm or ended.__class__ not in _SUCCEEDED:
            self._holding.ended(item, ended)
        self._owner.ended(item, ended)
        if route.limit is not None or self._alone is not None:
            self._ran(item)

    def _not_now(self, item: Item) -> None:
        """Given back while it waited for a runner, or to be; or the lease has become unsafe since."""
        if item.stage is _CLAIMED:
            if self._owner.stopping:
                self._owner.give_back(item)
            else:
                self._uncovered(item)
        self._ran(item)

    def _ran(self, item: Item) -> None:
        route = item.route
        if route.limit is not None:
            route.running -= 1
            while route.backlog and route.running < route.limit:
                following = route.backlog.popleft()
                if following.stage is _CLAIMED:
                    self.start(following)
        if self._alone is not None:
            self.start_alone()

    def _isolate(self, item: Item) -> None:
        """Workers died while they ran this entry: nothing else has a claim or runs beside it."""
        if self._alone is not None:
            self._owner.give_back(item)
            return
        self._alone = item
        self._notice("runs_alone", operation=item.route.name, crashes=item.crashes)
        for other in self._owner.unstarted():
            if other is not item:
                self._owner.give_back(other)
        self.start_alone()

    def start_alone(self) -> None:
        """Start the dangerous item once nothing else runs or has a claim; when it has ended, let the others go on."""
        item = self._alone
        if item is None or self._alone_queued or self._running:
            return
        if item.stage is not Stage.CLAIMED:
            self._alone = None
            self._owner.reopen()
        elif self._owner.open_claims > 1:
            # Claims that are given back count until that is durable: if this one kills us now, they die with it.
            return
        elif self._covers(item.fence):
            self._alone_queued = True
            if item.route.limit is not None:
                item.route.running += 1
            self._runners_of(item).start(item)
        else:
            self._alone = None
            self._uncovered(item)


async def _forget_cancels(task: Runner) -> None:
    """A cancel that a handler asked for, or got, and left pending must not hit the next message of this runner."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.cancelling():
        task.uncancel()
