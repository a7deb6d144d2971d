"""Telling: what goes out about a record is acknowledged, or the record is parked, before it is finished."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from worker.engine.batches import Batches
from worker.engine.items import Item
from worker.engine.letters import Letters, cut
from worker.engine.ports import Ledger, Notice, Publisher
from worker.engine.routes import Route
from worker.engine.tasks import Tasks
from worker.rules.claims import Outcome
from worker.rules.entries import Row
from worker.rules.outgoing import Outgoing, TooLarge
from worker.rules.reasons import Reason
from worker.rules.results import Result, outcome_of
from worker.rules.writes import Parking, Place

# Reasons whose dead letters tell what the entry says.
_FROM_THE_ROW = frozenset({"misuse", "retries_exhausted", "crash_loop"})


class Owner(Protocol):
    """Who moves items on whose outcome is durable."""

    def finish(self, item: Item, outcome: Outcome) -> None: ...
    def judge_again(self, item: Item) -> None: ...


@dataclass(frozen=True, slots=True)
class _Letter:
    """What must be acknowledged before a record is finished."""

    item: Item
    outgoing: tuple[Outgoing, ...]
    outcome: Outcome
    since: float
    reason: Reason | None = None
    detail: str | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class _ToPark:
    """A record to park, and what goes out once it is."""

    item: Item
    parking: Parking
    then: _Letter
    otherwise: _Letter | None = None  # what is tried again if it cannot be parked


class Teller:
    """The replies, results and dead letters of items, and the records that are parked, in batches."""

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
        self._parked: Batches[_ToPark] = Batches("park", self._park, tasks, size=100, calls=1)
        self._outgoing: Batches[_Letter] = Batches("publish", self._publish, tasks, size=200, calls=2)
        self._owing: Batches[tuple[Item, Reason, str]] = Batches("owing", self._owe, tasks, size=batch, calls=1)
        self._unparked: Batches[Place] = Batches("unpark", self._unpark, tasks, size=100, calls=1)
        self._all = (self._owing, self._unparked, self._parked, self._outgoing)

    @property
    def busy(self) -> int:
        return sum(len(batches) for batches in self._all)

    def park(self, item: Item, reason: str, due: float | None) -> None:
        """Keep the record; whoever asked for a reply is told once that it is in doubt."""
        # One that was parked before it had an entry moves to its entry, which then is held for it and wakes it.
        again = item.parked is not None and item.parked[0] == item.id
        parking = Parking(item.record, reason, item.id, item.plan.operation, due, again=again)
        told = self._letters.reply(item, 202) if reason == "unknown" and item.parked_for != "unknown" else None
        then = _Letter(item, () if told is None else (told,), Outcome.PARKED, self._now())
        self._parked.add(_ToPark(item, parking, then))

    def unpark(self, item: Item) -> None:
        """A parked record is finished: its bytes are no longer needed."""
        assert item.parked is not None
        self._unparked.add(item.parked)

    def replay(self, item: Item, row: Row) -> None:
        """Answer a duplicate from the stored result."""
        assert row.result is not None
        self.answer(item, row.result, fence=row.fence, replayed=True)

    def answer(self, item: Item, result: Result, *, fence: int, replayed: bool) -> None:
        """Publish a stored result where its handler says so, then finish; at once when there is nobody to tell."""
        handler = item.route.handler
        outgoing = [self._letters.result_reply(item, result, fence=fence, replayed=replayed)]
        if handler.result_topic is not None:
            outgoing.append(self._letters.result(handler.result_topic, item, result, fence=fence, replayed=replayed))
        self._send(item, outgoing, Outcome.REPLAYED if replayed else outcome_of(result))

    def dead_letter(self, item: Item, reason: Reason, detail: str, row: Row | None = None) -> None:
        outcome = Outcome.MISUSE if reason == "misuse" else Outcome.DEAD_LETTERED
        letter = self._letters.dead_letter(item, reason, detail, row)
        reply = self._letters.refusal_reply(item, reason, detail)
        self._outgoing.add(
            _Letter(item, (letter,) if reply is None else (letter, reply), outcome, self._now(), reason, detail)
        )

    def pay_letter(self, item: Item, reason: Reason, detail: str) -> None:
        """Write the dead letter that a parked record is owed, whatever has become of its entry since."""
        self._owing.add((item, reason, detail))

    def _send(self, item: Item, outgoing: Sequence[Outgoing | None], outcome: Outcome) -> None:
        wanted = tuple(out for out in outgoing if out is not None)
        if wanted:
            self._outgoing.add(_Letter(item, wanted, outcome, self._now()))
        else:
            self._owner.finish(item, outcome)

    async def _park(self, batch: list[_ToPark]) -> None:
        moved_on = await self._ledger.parking.park([one.parking for one in batch])
        for one in batch:
            if one.parking.place in moved_on:
                if one.otherwise is None:
                    self._owner.judge_again(one.item)
                else:
                    # The entry whose result is owed is gone: judged again it would be claimed, and run again.
                    self._outgoing.add(one.otherwise)
                continue
            if one.item.parked not in (None, one.parking.place):
                self.unpark(one.item)
            if one.then.outgoing:
                self._outgoing.add(one.then)
            else:
                self._owner.finish(one.item, one.then.outcome)

    async def _owe(self, batch: list[tuple[Item, Reason, str]]) -> None:
        """Tell again, as far as the entries still say it, what the letters told when they could not be written."""
        ids = {item: id_ for item, _, _ in batch if (id_ := getattr(item, "id", None)) is not None}
        rows = await self._ledger.claims.look_up(sorted(set(ids.values())))
        for item, reason, detail in batch:
            row = rows.get(ids.get(item, b"")) if reason in _FROM_THE_ROW else None
            if row is not None:
                item.attempts, item.crashes, item.failed_at = row.attempts, row.crashes, row.failed_at
            self.dead_letter(item, reason, detail, row)

    async def _unpark(self, batch: list[Place]) -> None:
        await self._ledger.parking.finish(batch)

    async def _publish(self, batch: list[_Letter]) -> None:
        if any(letter.reason is not None for letter in batch):
            # Without Postgres nothing is finished, also not by a dead letter: this returns when the ledger answers.
            await self._ledger.claims.look_up(())
        answers = await self._publisher.publish([out for letter in batch for out in letter.outgoing])
        answer = iter(answers)
        written: Counter[tuple[str, str, Reason]] = Counter()
        for letter in batch:
            problems = [(out, problem) for out in letter.outgoing if (problem := next(answer)) is not None]
            if problems:
                self._unpublished(letter, problems)
                continue
            if letter.reason is not None:
                reason: Reason = "too_large" if letter.cut else letter.reason
                written[letter.item.record.topic, _operation(letter.item), reason] += 1
            self._owner.finish(letter.item, letter.outcome)
        for (topic, operation, reason), count in written.items():
            self._notice("dead_lettered", topic=topic, operation=operation, reason=reason, count=count)

    def _unpublished(self, letter: _Letter, problems: list[tuple[Outgoing, Exception]]) -> None:
        """Never skipped: what cannot be written is tried again, and its record parked when that takes long."""
        for out, problem in problems:
            self._notice("letter_not_written", topic=out.topic, error=str(problem), next="trying again, or parked")
        too_large = [out for out, problem in problems if isinstance(problem, TooLarge)]
        if not too_large and self._now() - letter.since < self._hold:
            again = replace(letter, outgoing=tuple(out for out, _ in problems))
            asyncio.get_running_loop().call_later(0.5, self._outgoing.add, again)
            return
        why = f"{'too_large' if too_large else 'unwritable'}:{letter.reason or 'result'}"
        parking = self._owed(letter, why, due=None if too_large else self._hold)
        small = () if letter.cut else tuple(cut(out) for out in too_large)
        # Parked, not finished: otherwise what came from the parking lot would be removed from it, and never be paid.
        stays = letter.item.parked is not None or (letter.reason is not None and not small)
        then = replace(letter, outgoing=small, cut=True, outcome=Outcome.PARKED if stays else letter.outcome)
        again = replace(letter, outgoing=tuple(out for out, _ in problems), since=self._now())
        self._parked.add(_ToPark(letter.item, parking, then, again))

    def _owed(self, letter: _Letter, why: str, due: float | None) -> Parking:
        """Tried again when due. A result holds its entry, from which it is paid; a letter needs only the record."""
        item = letter.item
        if item.parked is not None:
            return Parking(item.record, why, item.parked[0], None, due, again=True, owed=True, detail=letter.detail)
        route: Route | None = item.route
        operation = None if route is None else route.plan.operation
        id_ = item.id if letter.reason is None else None
        return Parking(item.record, why, id_, operation, due, owed=True, detail=letter.detail)


def _operation(item: Item) -> str:
    route: Route | None = item.route
    return "none" if route is None else route.name
