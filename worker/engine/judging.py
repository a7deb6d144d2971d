"""Judging: what a row means for an item that did not win its key."""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from worker.engine.items import Item
from worker.engine.ports import Claims
from worker.engine.telling import Teller
from worker.engine.waiting import Waiting
from worker.engine.wishes import Wishes
from worker.rules.document import Document
from worker.rules.entries import Answer, Row, answer
from worker.rules.fingerprint import FORMAT
from worker.rules.reasons import Reason


class Owner(Protocol):
    """Who moves items on that have ended."""

    wishes: Wishes

    def end(self, item: Item) -> None: ...


class Claiming(Protocol):
    """Who offers items once more."""

    def judge_again(self, item: Item) -> None: ...
    def claim_again(self, item: Item) -> None: ...


class Judge:
    """Each item is judged against the row, never against another item in memory."""

    def __init__(
        self,
        claims: Claims,
        teller: Teller,
        owner: Owner,
        claiming: Claiming,
        *,
        hold: float,
        crash_cap: int,
        clock: Callable[[], float],
    ) -> None:
        self._teller = teller
        self._owner = owner
        self._claiming = claiming
        self._hold = hold
        self._crash_cap = crash_cap
        self._clock = clock
        self.answers: Counter[Answer] = Counter()
        self.waiting = Waiting(claims, self.judge, self.too_long, hold=hold)

    def judge(self, item: Item, row: Row | None) -> None:
        """Act on what the row says about an item that did not win its key."""
        if item.revoked:
            return
        if row is None:
            # Pruned between two statements, or the session ended: claim again, not in a hot loop.
            self.waiting.later(item, 0.05, self._claiming.judge_again)
            return
        verdict = self.answer(item, row)
        self.answers[verdict] += 1
        match verdict:
            case Answer.REPLAY:
                self._owner.end(item)
                self._teller.replay(item, row)
            case Answer.MISUSE:
                self._dead_letter(item, row, "misuse", "the key was used before with another payload")
            case Answer.WAIT:
                self.waiting.elsewhere(item, self._clock())
            case Answer.DOUBT:
                self._park(item, "unknown", None)
            case Answer.DUE:
                self._claiming.claim_again(item)
            case Answer.LATER:
                self._wait_or_park(item, row.due_in or 0.0)
            case Answer.EXHAUSTED:
                self._dead_letter(item, row, "retries_exhausted", f"{row.attempts} attempts failed")
            case Answer.CRASH_LOOP:
                self._dead_letter(item, row, "crash_loop", f"{row.crashes} workers died while they ran it")

    def answer(self, item: Item, row: Row) -> Answer:
        """What the row means for the item; nothing is done about it."""
        fingerprint = item.fingerprint
        if row.format != FORMAT:
            fingerprint = item.route.fingerprint.digest_as(row.format, Document(item.record.value))
        return answer(row, fingerprint, item.plan, self._crash_cap)

    def _wait_or_park(self, item: Item, delay: float) -> None:
        if delay <= self._hold:
            self.waiting.later(item, delay, self._claiming.judge_again)
        else:
            self._park(item, "retry", delay)

    def _dead_letter(self, item: Item, row: Row, reason: Reason, detail: str) -> None:
        item.attempts, item.crashes, item.failed_at = row.attempts, row.crashes, row.failed_at
        self._owner.end(item)
        self._teller.dead_letter(item, reason, detail, row)

    def too_long(self, item: Item) -> None:
        """Park an item that has waited as long as may be waited in line."""
        self._park(item, "hold", self._hold)

    def _park(self, item: Item, reason: str, due: float | None) -> None:
        if self._owner.wishes.skips(item):
            # Parked, its offset would be committed, and it would run after all.
            return
        self._owner.end(item)
        self._teller.park(item, reason, due)
