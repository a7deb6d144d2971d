"""The pipeline: from fetched to finished, for all lanes of one worker."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from worker.engine.calling import Caller, Committed, Ended, Superseded, Unfinished
from worker.engine.claimer import Claimer
from worker.engine.finisher import Finisher
from worker.engine.holding import DANGEROUS, Holding
from worker.engine.intake import Intake, size_of
from worker.engine.items import Item, Stage
from worker.engine.letters import Letters
from worker.engine.ports import Ledger, Notice, Publisher
from worker.engine.runners import Runners
from worker.engine.strands import Strands
from worker.engine.tasks import Tasks
from worker.rules.claims import Outcome, State
from worker.rules.lanes import Lane
from worker.rules.reasons import Refused
from worker.rules.record import Record
from worker.rules.results import Result
from worker.rules.writes import Parked


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the pipeline; see the settings of the same names."""

    in_flight: int
    concurrency: int
    claim_batch: int
    claims_in_flight: int
    hold: float
    crash_cap: int


@dataclass(frozen=True, slots=True)
class Outside:
    """What the pipeline works with."""

    intake: Intake
    ledger: Ledger
    publisher: Publisher
    letters: Letters
    caller: Caller
    tasks: Tasks
    clock: Callable[[], float]
    notice: Notice


class Pipeline:
    """Owns every item from its arrival until it is finished."""

    def __init__(self, outside: Outside, limits: Limits) -> None:
        self._intake = outside.intake
        self._lease = outside.ledger.lease
        self._caller = outside.caller
        self._clock = outside.clock
        self._notice = outside.notice
        self._strands = Strands()
        self._running: dict[Item, asyncio.Task[object]] = {}
        self._gated: list[Item] = []
        self.stopping = False
        self.overdue = 0
        self.outcomes: Counter[tuple[str, str, Outcome]] = Counter()
        self.room = asyncio.Event()
        self._runners = Runners(self._run, outside.tasks, limit=limits.concurrency)
        self._finisher = Finisher(
            outside.ledger,
            outside.publisher,
            outside.letters,
            self,
            outside.tasks,
            batch=limits.claim_batch,
            hold=limits.hold,
            now=outside.clock,
            notice=outside.notice,
        )
        self._holding = Holding(self._offer_one, outside.clock, outside.notice)
        self._claimer = Claimer(
            outside.ledger.claims,
            self._finisher,
            self,
            outside.tasks,
            in_flight=limits.in_flight,
            batch=limits.claim_batch,
            calls=limits.claims_in_flight,
            hold=limits.hold,
            crash_cap=limits.crash_cap,
            clock=outside.clock,
        )

    def _offer_one(self, item: Item) -> None:
        self._claimer.offer_one(item)

    def take(self, lane: Lane, records: Sequence[Record], position: int) -> None:
        """Accept what one fetch delivered; never awaits."""
        items = [Item(record, lane, size_of(record)) for record in records]
        lane.receive(items, position)
        entered = [item for item in items if self._enter(item)]
        if items and items[0].offset < lane.seen_below:
            entered = self._claimer.look_back(entered)
        self._claimer.offer(entered)

    def take_parked(self, parked: Parked) -> None:
        """Accept a record that was parked: it runs out of order."""
        item = Item(parked.record, None, size_of(parked.record))
        item.out_of_order = True
        item.parked = parked.place
        if self._enter(item):
            self._claimer.offer((item,))

    def _enter(self, item: Item) -> bool:
        try:
            self._intake.read(item)
        except Refused as refused:
            item.stage = Stage.ENDED
            self._finisher.dead_letter(item, refused.reason, refused.detail)
            return False
        if self._strands.enter(item):
            item.stage = Stage.OFFERED
            return not self.holds(item)
        return False

    @property
    def closed(self) -> bool:
        """Whether nothing may be claimed now."""
        return self.stopping or self._holding.guarded

    def holds(self, item: Item) -> bool:
        """Keep an item back while its handler's circuit is open."""
        if not item.route.circuit.open:
            return False
        self._holding.take(item)
        return True

    def won(self, item: Item) -> None:
        """The item's key is claimed; it runs when it is first in its strand."""
        if item.revoked or self.stopping:
            self.give_back(item)
        elif item.first:
            self._start(item)

    def _start(self, item: Item) -> None:
        route = item.route
        if item.crashes >= DANGEROUS:
            self._isolate(item)
        elif self._holding.guarded or (route.circuit.open and route.trial is not item):
            self.give_back(item)
        elif not self._lease.safe():
            self._gated.append(item)
        elif route.handler.concurrency is not None and route.running >= route.handler.concurrency:
            route.backlog.append(item)
        else:
            route.running += 1
            self._runners.start(item)

    def _isolate(self, item: Item) -> None:
        """Workers died while they ran this entry: nothing else is claimed or runs beside it."""
        self._holding.isolate(item)
        for other in self._claimer.unstarted():
            if other.crashes < DANGEROUS:
                self.give_back(other)
        self._start_alone()

    def _start_alone(self) -> None:
        if self._running or not self._holding.guarded:
            return
        item = self._holding.next_alone()
        while item is not None and item.stage is not Stage.CLAIMED:
            self._holding.left(item)
            item = self._holding.next_alone()
        if item is None:
            self._claimer.reopen()
        elif self._lease.safe():
            item.route.running += 1
            self._runners.start(item)
        else:
            self._holding.left(item)
            self.give_back(item)

    async def _run(self, item: Item) -> None:
        """What a runner does with one item. Never raises."""
        route = item.route
        if item.stage is Stage.CLAIMED and self.stopping:
            self.give_back(item)
        if item.stage is not Stage.CLAIMED:
            # Given back while it waited for a runner: its lane was revoked, the worker stops, or another runs alone.
            self._holding.left(item)
            self._ran(item)
            return
        if not self._lease.safe():
            self._holding.left(item)
            self._gated.append(item)
            self._ran(item)
            return
        item.stage = Stage.RUNNING
        item.deadline = self._clock() + route.timeout
        task = asyncio.current_task()
        assert task is not None
        self._running[item] = task
        ended = await self._caller.call(item)
        while task.cancelling():
            task.uncancel()
        del self._running[item]
        self._holding.ended(item, ended)
        self._ended(item, ended)
        self._ran(item)

    def _ran(self, item: Item) -> None:
        route = item.route
        route.running -= 1
        while route.backlog:
            following = route.backlog.popleft()
            if following.stage is Stage.CLAIMED:
                self._start(following)
                break
        if self._holding.guarded:
            self._start_alone()

    def _ended(self, item: Item, ended: Ended) -> None:
        match ended:
            case Result():
                self.end(item)
                self._finisher.complete(item, ended)
            case Committed():
                self.end(item)
                self._claimer.over(item)
                self._finisher.answer(item, ended.result, fence=item.fence, replayed=False)
            case Unfinished(State.FAILED_RETRYABLE, error, True):
                self._finisher.fail(item, error)
            case Unfinished(State.FAILED_RETRYABLE, _, False):
                self._finisher.release(item)
            case Unfinished(_, error):
                self._finisher.doubt(item, error)
            case Superseded():
                self._claimer.over(item, again=True)

    def end(self, item: Item) -> None:
        """The item's outcome is decided: the next of its strand may move."""
        item.stage = Stage.ENDED
        if item.strand is None:
            return
        for moving in self._strands.leave(item):
            if moving.stage is Stage.CLAIMED and moving.first:
                self.won(moving)
            elif moving.stage is Stage.LINED_UP:
                moving.stage = Stage.OFFERED
                self._claimer.offer((moving,))

    def give_back(self, item: Item) -> None:
        """Release a claim whose handler never started."""
        item.stage = Stage.OFFERED
        self._finisher.release(item)

    def claim_over(self, item: Item, *, again: bool = False) -> None:
        """The item's claim has ended, durably."""
        self._claimer.over(item, again=again)

    def judge_again(self, item: Item) -> None:
        """The row decides what the item is now."""
        self._claimer.judge_again(item)

    def finish(self, item: Item, outcome: Outcome) -> None:
        """The outcome is durable: the watermark may pass the record."""
        route = getattr(item, "route", None)
        self.outcomes[item.record.topic, route.name if route else "", outcome] += 1
        item.finished = True
        lane = item.lane
        if lane is not None:
            lane.unfinished -= 1
            lane.bytes -= item.size
            item.forget()
            self.room.set()
        elif outcome is not Outcome.PARKED:
            self._finisher.unpark(item)

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
            elif now - item.asked_at > 5.0:
                overdue += 1
        self.overdue = overdue
        self._holding.tick()
        if self._gated and self._lease.safe():
            gated, self._gated = self._gated, []
            for item in gated:
                if item.stage is Stage.CLAIMED:
                    self._start(item)

    def revoke(self, lanes: Sequence[Lane]) -> None:
        """Stop starting anything of these lanes, at once; claims that never started are given back."""
        for lane in lanes:
            lane.revoked = True
        for lane in lanes:
            self._strands.forget(lane)
            for item in lane.watermark:
                if item.stage is Stage.CLAIMED:
                    self.give_back(item)
        self._claimer.waiting.forget_revoked()

    def stop(self, lanes: Iterable[Lane]) -> None:
        """Start nothing more; what runs may end."""
        self.stopping = True
        for lane in lanes:
            for item in lane.watermark:
                if item.stage is Stage.CLAIMED:
                    self.give_back(item)

    def running(self, lanes: Sequence[Lane] | None = None) -> list[Item]:
        """Items whose handler runs, of these lanes or of all."""
        return [item for item in self._running if lanes is None or item.lane in lanes]

    def cancel(self, items: Iterable[Item]) -> None:
        """Ask running handlers to stop."""
        for item in items:
            task = self._running.get(item)
            if task is not None:
                task.cancel()

    @property
    def busy(self) -> int:
        """What runs, and what is decided but not durable yet."""
        return self._finisher.busy + len(self._running)

    @property
    def open_claims(self) -> int:
        return self._claimer.open

    @property
    def waiting(self) -> int:
        return len(self._claimer.waiting)
