"""The pipeline: from fetched to finished, for all lanes of one worker."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from worker.engine.calling import Caller, Committed, Ended, Superseded, Unfinished
from worker.engine.claimer import Claimer
from worker.engine.counts import Counts
from worker.engine.execution import Execution
from worker.engine.finisher import Finisher
from worker.engine.holding import Holding
from worker.engine.intake import Intake
from worker.engine.items import Item, Stage
from worker.engine.letters import Letters
from worker.engine.ports import Ledger, Notice, Publisher
from worker.engine.strands import Strands
from worker.engine.tasks import Tasks
from worker.engine.telling import Teller
from worker.engine.wishes import Wishes
from worker.rules.claims import Outcome, State, Status
from worker.rules.entries import Answer, Row
from worker.rules.lanes import Lane
from worker.rules.reasons import Reason, Refused, owed_letter
from worker.rules.record import Record
from worker.rules.results import Result
from worker.rules.writes import Parked, Place

_OFFERED, _CLAIMED, _ENDED = Stage.OFFERED, Stage.CLAIMED, Stage.ENDED
_REJECTED = Status.REJECTED


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the pipeline; see the settings of the same names."""

    in_flight: int
    concurrency: int
    transactions: int  # transactional handlers that run, or wait for a connection
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
        self._caller = outside.caller
        self._strands = Strands()
        self._parked: set[Place] = set()  # parked records in hand
        self.stopping = False
        self.counts = Counts()
        self.room = asyncio.Event()
        self._finisher = Finisher(
            outside.ledger.finals,
            self,
            outside.tasks,
            batch=limits.claim_batch,
            now=outside.clock,
            notice=outside.notice,
        )
        self._teller = Teller(
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
        self.wishes = Wishes(self, self._holding, self._teller, self.room)
        self._execution = Execution(
            self,
            outside.caller,
            self._holding,
            outside.ledger.lease,
            outside.tasks,
            limit=limits.concurrency,
            transactions=limits.transactions,
            clock=outside.clock,
            notice=outside.notice,
        )
        self._claimer = Claimer(
            outside.ledger.claims,
            outside.ledger.filter,
            self._teller,
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

    def take(self, lane: Lane, records: Sequence[Record], position: int, *, more: bool = False) -> None:
        """Accept what one fetch delivered, or a part of it: `more` promises `all_taken()` in a moment. Never awaits."""
        items = [Item(record, lane) for record in records]
        lane.receive(items, position)
        if items and self.counts.delays is not None:
            lane.watched[items[-1].offset] = items[-1].record.timestamp
        entered = [item for item in items if self._enter(item)]
        if items and items[0].offset < lane.seen_below:
            entered = self._claimer.look_back(entered)
        # Where most must wait for others of their key, those that need not do not wait for more.
        self._claimer.offer(entered, more=more and 2 * len(entered) >= len(items))

    def all_taken(self) -> None:
        """What one fetch delivered is here: claims wait for no more of it."""
        self._claimer.all_offered()

    def take_parked(self, parked: Parked) -> None:
        """Accept a record that was parked: it runs out of order. One that is in hand already is not taken twice."""
        if parked.place in self._parked:
            return
        self._parked.add(parked.place)
        item = Item(parked.record, None)
        item.out_of_order = True
        item.parked, item.parked_for = parked.place, parked.reason
        if (route := self._intake.route_of(parked.record.topic, parked.operation)) is not None:
            item.route = route
        reason = owed_letter(parked.reason)
        if reason is not None:
            self._pay(item, reason, parked.detail or "")
        elif self._enter(item):
            self._claimer.offer((item,))

    def _pay(self, item: Item, reason: Reason, detail: str) -> None:
        """Its outcome was decided when its letter could not be written: it is not judged, let alone run, again."""
        with contextlib.suppress(Exception):
            # Only for what the letter tells; a validator of the user's model may raise anything.
            self._intake.read(item)
        item.stage = Stage.ENDED
        self._teller.pay_letter(item, reason, detail)

    def _enter(self, item: Item) -> bool:
        try:
            self._intake.read(item)
        except Refused as refused:
            return self._refuse(item, refused)
        except Exception as error:
            # A validator of the user's model may raise anything; the record must not stop the worker for ever.
            return self._refuse(item, Refused("invalid_payload", f"its validation raised {type(error).__name__}"))
        if not self._strands.enter(item):
            return False
        item.stage = _OFFERED
        return not ((self.wishes.any or item.route.circuit.open) and self.wishes.holds(item))

    def _refuse(self, item: Item, refused: Refused) -> bool:
        item.stage = Stage.ENDED
        self._teller.dead_letter(item, refused.reason, refused.detail)
        return False

    @property
    def closed(self) -> bool:
        """Whether nothing may be claimed now."""
        return self.stopping or self._execution.guarded

    @property
    def crowd(self) -> int:
        """Items whose keys are claimed and that cannot start before another one ends."""
        return self._execution.crowd

    @property
    def completing(self) -> int:
        """Claims that are about to be over."""
        return self._finisher.completing

    def reopen(self) -> None:
        """What could not be claimed for a while may be claimed again."""
        self._claimer.reopen()

    def won(self, item: Item) -> None:
        """The item's key is claimed; it runs when it is first in its strand."""
        if item.revoked or self.stopping or not item.may_claim or self.wishes.against(item):
            # Also when the one ahead has lost its claim meanwhile: waiting with one could take the room it needs.
            self.give_back(item)
        else:
            if item.first:
                self._execution.start(item)
            self._claimer.offer_behind(item)

    def won_all(self, items: Sequence[Item], fence: int, sent: float) -> None:
        """The keys of these are claimed, for the first time; each that stands alone in its strand starts at once."""
        alone = []
        free = not self.stopping and not self.wishes.any
        for item in items:
            item.fence = fence
            item.claimed_at = sent
            item.stage = _CLAIMED
            if free and item.ahead is None and item.next is None and not item.revoked:
                alone.append(item)
            else:
                self.won(item)
        self._execution.start_all(alone, fence)

    def started(self, item: Item) -> None:
        """The item's handler runs: one more behind it may be claimed."""
        self._claimer.offer_behind(item)

    def unstarted(self) -> list[Item]:
        """Items that hold a claim and have not started."""
        return self._claimer.unstarted()

    def ended(self, item: Item, ended: Ended) -> None:
        """A handler has really ended; how decides."""
        if ended.__class__ is Result:
            self.end(item)
            self._finisher.complete(item, ended)
            return
        match ended:
            case Committed():
                self.end(item)
                item.result = ended.result
                self._finisher.completed(item)
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
        item.stage = _ENDED
        if item.route.trial is not None:
            self._holding.passed(item)
        if item.strand is None:
            return
        for moving in self._strands.leave(item):
            if moving.stage is Stage.CLAIMED and moving.first:
                self.won(moving)
            elif moving.stage is Stage.LINED_UP:
                self._claimer.judge_again(moving)

    def give_back(self, item: Item) -> None:
        """Release a claim whose handler never started."""
        item.stage = Stage.OFFERED
        if item.route.trial is item:
            # It tries nothing now: another may, at once.
            self._holding.passed(item)
        self._finisher.release(item)

    def claim_over(self, item: Item, *, again: bool = False) -> None:
        """The item's claim has ended, durably."""
        self._claimer.over(item, again=again)
        if self._execution.guarded:
            self._execution.start_alone()

    def judge_again(self, item: Item) -> None:
        """The row decides what the item is now."""
        self._claimer.judge_again(item)

    def completed(self, items: Sequence[Item]) -> None:
        """The results of these are stored, and their claims are over; then whoever asked is told."""
        self._claimer.all_over(items)
        if self._execution.guarded:
            self._execution.start_alone()
        silent = [item for item in items if item.route.silent]
        rejected = [item for item in silent if item.result.status is _REJECTED]
        if rejected:
            silent = [item for item in silent if item.result.status is not _REJECTED]
            self.finish_all(rejected, Outcome.REJECTED)
        self.finish_all(silent, Outcome.EXECUTED)
        if len(silent) + len(rejected) < len(items):
            for item in items:
                if not item.route.silent:
                    self._teller.answer(item, item.result, fence=item.fence, replayed=False)

    def replayed(self, answered: Sequence[tuple[Item, Row]]) -> None:
        """These are duplicates of completed entries: whoever asked is told what is stored."""
        for item, _ in answered:
            self.end(item)
        self.finish_all([item for item, _ in answered if item.route.silent], Outcome.REPLAYED)
        for item, row in answered:
            if not item.route.silent:
                self._teller.replay(item, row)

    def finish(self, item: Item, outcome: Outcome) -> None:
        """The outcome is durable: the watermark may pass the record."""
        self.finish_all((item,), outcome)

    def finish_all(self, items: Sequence[Item], outcome: Outcome) -> None:
        """The outcome of these is durable: the watermark may pass their records."""
        self.counts.count(items, outcome)
        for item in items:
            item.finished = True
            lane = item.lane
            if lane is not None:
                lane.unfinished -= 1
                lane.bytes -= item.size
                if lane.watched and item.offset in lane.watched:
                    self.counts.delayed(lane, item.offset)
                item.forget()
            elif item.parked is not None:
                self._parked.discard(item.parked)
                if outcome is not Outcome.PARKED:
                    self._teller.unpark(item)
        self.room.set()

    def tick(self) -> None:
        """Called several times a second: time has passed."""
        self._execution.tick()
        self._claimer.tick()
        self._finisher.tick()
        self._holding.tick()

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
        self.stopping = self._caller.stopping = True
        for lane in lanes:
            for item in lane.watermark:
                if item.stage is Stage.CLAIMED:
                    self.give_back(item)

    def running(self, lanes: Sequence[Lane] | None = None) -> list[Item]:
        """Items whose handler runs, of these lanes or of all."""
        return self._execution.running(lanes)

    def cancel(self, items: Iterable[Item]) -> None:
        """Ask running handlers to stop."""
        self._execution.cancel(items)

    @property
    def overdue(self) -> int:
        """Handlers that run on although they were asked to stop."""
        return self._execution.overdue

    @property
    def busy(self) -> int:
        """What runs, and what is decided but not durable yet."""
        return self._finisher.busy + self._teller.busy + len(self._execution)

    @property
    def parked_in_hand(self) -> int:
        """Records from the parking lot that are not finished and not parked again."""
        return len(self._parked)

    @property
    def open_claims(self) -> int:
        return self._claimer.open

    @property
    def claims_made(self) -> tuple[int, int]:
        """How many keys were claimed for the first time, and how many again."""
        return self._claimer.created, self._claimer.retried

    @property
    def answers(self) -> Mapping[Answer, int]:
        """What rows meant for records that did not win their key."""
        return self._claimer.answers

    @property
    def waiting(self) -> int:
        """Records that wait for another claim of their key, here or elsewhere, or for their due time."""
        return len(self._claimer.waiting) + self._claimer.behind
