"""Finishing: every outcome is made durable in batches, and only then is its record finished."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from worker.engine.batches import Batches
from worker.engine.items import Item
from worker.engine.letters import Letters
from worker.engine.ports import Ledger, Notice, Publisher
from worker.engine.tasks import Tasks
from worker.rules.claims import Outcome, Status
from worker.rules.entries import Row
from worker.rules.outgoing import Outgoing, TooLarge
from worker.rules.reasons import Reason
from worker.rules.results import Result
from worker.rules.writes import Done, Doubted, Failed, Parking, Place, Released


class Owner(Protocol):
    """Who moves items on after their outcome is durable."""

    def finish(self, item: Item, outcome: Outcome) -> None: ...
    def claim_over(self, item: Item, *, again: bool = False) -> None: ...
    def judge_again(self, item: Item) -> None: ...


@dataclass(frozen=True, slots=True)
class _Letter:
    item: Item
    outgoing: Outgoing
    outcome: Outcome
    since: float
    reason: Reason | None = None


class Finisher:
    """The batched ends of items."""

    def __init__(
        self,
        ledger: Ledger,
        publisher: Publisher,
        letters: Letters,
        owner: Owner,
        tasks: Tasks,
        *,
        batch: int,
        hold: float,
        now: Callable[[], float],
        notice: Notice,
    ) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._letters = letters
        self._owner = owner
        self._hold = hold
        self._now = now
        self._notice = notice
        self._chance = random.Random()
        self._done: Batches[tuple[Item, Result]] = Batches("complete", self._complete, tasks, size=batch, calls=2)
        self._failed: Batches[tuple[Item, str]] = Batches("fail", self._fail, tasks, size=batch, calls=1)
        self._doubted: Batches[tuple[Item, str]] = Batches("doubt", self._doubt, tasks, size=batch, calls=1)
        self._released: Batches[Item] = Batches("release", self._release, tasks, size=batch, calls=1)
        self._parked: Batches[tuple[Item, Parking]] = Batches("park", self._park, tasks, size=100, calls=1)
        self._outgoing: Batches[_Letter] = Batches("publish", self._publish, tasks, size=200, calls=2)
        self._unparked: Batches[Place] = Batches("unpark", self._unpark, tasks, size=100, calls=1)
        self._all = (
            self._unparked,
            self._done,
            self._failed,
            self._doubted,
            self._released,
            self._parked,
            self._outgoing,
        )

    @property
    def busy(self) -> int:
        return sum(len(batches) for batches in self._all)

    def complete(self, item: Item, result: Result) -> None:
        self._done.add((item, result))

    def fail(self, item: Item, error: str) -> None:
        self._failed.add((item, error))

    def doubt(self, item: Item, error: str) -> None:
        self._doubted.add((item, error))

    def release(self, item: Item) -> None:
        self._released.add(item)

    def park(self, item: Item, reason: str, due: float | None) -> None:
        parking = Parking(item.record, reason, item.id, item.plan.operation, due, again=item.parked is not None)
        self._parked.add((item, parking))

    def unpark(self, item: Item) -> None:
        """A parked record is finished: its bytes are no longer needed."""
        assert item.parked is not None
        self._unparked.add(item.parked)

    def replay(self, item: Item, row: Row) -> None:
        """Answer a duplicate from the stored result; without anyone to answer it is finished at once."""
        assert row.result is not None
        self.answer(item, row.result, fence=row.fence, replayed=True)

    def answer(self, item: Item, result: Result, *, fence: int, replayed: bool) -> None:
        """Publish a stored result where its handler says so, then finish."""
        topic = item.route.handler.result_topic
        outcome = Outcome.REPLAYED
        if not replayed:
            outcome = Outcome.REJECTED if result.status is Status.REJECTED else Outcome.EXECUTED
        if topic is None:
            self._owner.finish(item, outcome)
            return
        outgoing = self._letters.result(topic, item, result, fence=fence, replayed=replayed)
        self._outgoing.add(_Letter(item, outgoing, outcome, self._now()))

    def dead_letter(self, item: Item, reason: Reason, detail: str, row: Row | None = None) -> None:
        outgoing = self._letters.dead_letter(item, reason, detail, row)
        outcome = Outcome.MISUSE if reason == "misuse" else Outcome.DEAD_LETTERED
        self._outgoing.add(_Letter(item, outgoing, outcome, self._now(), reason))

    async def _complete(self, batch: list[tuple[Item, Result]]) -> None:
        now = self._now()
        done = [Done(i.id, i.fence, r, i.plan.ttl) for i, r in batch if now - i.claimed_at < i.plan.ttl / 3]
        late = [Done(i.id, i.fence, r, i.plan.ttl) for i, r in batch if now - i.claimed_at >= i.plan.ttl / 3]
        if done:
            undecided = await self._ledger.finals.complete(done)
            if undecided:
                late += [d for d in done if d.id in undecided]
        refused: set[bytes] = set()
        if late:
            refused = await self._ledger.finals.complete_late(late)
            self._notice("late_results", accepted=len(late) - len(refused), refused=len(refused))
        for item, result in batch:
            self._owner.claim_over(item, again=item.id in refused)
            if item.id in refused:
                # Another decision stands in the row, and the effect may have happened twice: kept in its history.
                self._notice(
                    "result_refused", operation=item.route.name, fence=item.fence, alert="possible double effect"
                )
            else:
                self.answer(item, result, fence=item.fence, replayed=False)

    async def _fail(self, batch: list[tuple[Item, str]]) -> None:
        delays = [i.route.handler.retries.delay(i.attempts + 1, self._chance).total_seconds() for i, _ in batch]
        failed = [Failed(i.id, i.fence, d, e) for (i, e), d in zip(batch, delays, strict=True)]
        await self._ledger.finals.fail(failed)
        for item, error in batch:
            self._notice("attempt_failed", operation=item.route.name, attempt=item.attempts + 1, error=error)
            self._owner.claim_over(item, again=True)

    async def _doubt(self, batch: list[tuple[Item, str]]) -> None:
        undecided = await self._ledger.finals.doubt([Doubted(i.id, i.fence, e) for i, e in batch])
        for item, error in batch:
            if item.id not in undecided:
                self._notice("entry_in_doubt", operation=item.route.name, fence=item.fence, error=error, next="parked")
            self._owner.claim_over(item, again=True)

    async def _release(self, batch: list[Item]) -> None:
        await self._ledger.finals.release([Released(i.id, i.fence) for i in batch])
        for item in batch:
            self._owner.claim_over(item, again=True)

    async def _park(self, batch: list[tuple[Item, Parking]]) -> None:
        moved_on = await self._ledger.parking.park([p for _, p in batch])
        for item, parking in batch:
            if parking.place in moved_on:
                self._owner.judge_again(item)
            else:
                self._owner.finish(item, Outcome.PARKED)

    async def _unpark(self, batch: list[Place]) -> None:
        await self._ledger.parking.finish(batch)

    async def _publish(self, batch: list[_Letter]) -> None:
        answers = await self._publisher.publish([letter.outgoing for letter in batch])
        for letter, problem in zip(batch, answers, strict=True):
            if problem is None:
                self._owner.finish(letter.item, letter.outcome)
            else:
                self._unpublished(letter, problem)

    def _unpublished(self, letter: _Letter, problem: Exception) -> None:
        """Never skipped: a record whose letter cannot be written is tried again, and parked when it takes long."""
        item, topic = letter.item, letter.outgoing.topic
        if isinstance(problem, TooLarge) or self._now() - letter.since > self._hold:
            why = "too_large" if isinstance(problem, TooLarge) else "unwritable"
            self._notice("letter_parked", topic=topic, why=why, error=str(problem))
            # Without an entry's id: what is owed is the letter, whatever becomes of the entry.
            self._parked.add((item, Parking(item.record, f"{why}:{letter.reason or 'result'}", None, None, None)))
            return
        self._notice("letter_not_written", topic=topic, error=str(problem), next="trying again")
        asyncio.get_running_loop().call_later(0.5, self._outgoing.add, letter)
