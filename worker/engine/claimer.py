"""Claiming: which keys are offered when."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from worker.engine.batches import CRUMBS, Batches
from worker.engine.items import Item, Stage
from worker.engine.judging import Judge
from worker.engine.ports import Claims, Filter
from worker.engine.tasks import Tasks
from worker.engine.telling import Teller
from worker.engine.waiting import Waiting
from worker.engine.window import Window
from worker.engine.wishes import Wishes
from worker.rules.entries import Answer, Row, Won

# Shares of duplicates from which asking the filter, and looking up before claiming, pay.
_SOME = 0.1
_MOSTLY = 0.5


class Owner(Protocol):
    """Who moves items on that have won or ended."""

    wishes: Wishes

    @property
    def closed(self) -> bool: ...
    @property
    def crowd(self) -> int: ...
    @property
    def completing(self) -> int: ...
    def won(self, item: Item) -> None: ...
    def won_all(self, items: Sequence[Item], fence: int, sent: float) -> None: ...
    def replayed(self, answered: Sequence[tuple[Item, Row]]) -> None: ...
    def end(self, item: Item) -> None: ...
    def give_back(self, item: Item) -> None: ...


class Claimer:
    """The claims of one worker. Each key is in the hands of at most one item at a time."""

    def __init__(
        self,
        claims: Claims,
        filter_: Filter | None,
        teller: Teller,
        owner: Owner,
        tasks: Tasks,
        *,
        in_flight: int,
        batch: int,
        calls: int,
        hold: float,
        crash_cap: int,
        clock: Callable[[], float],
    ) -> None:
        self._claims = claims
        self._filter = filter_
        self._teller = teller
        self._owner = owner
        self._judge = Judge(claims, teller, owner, self, hold=hold, crash_cap=crash_cap, clock=clock)
        self._window = Window(in_flight, self.reopen, clock)
        self._hold = hold
        self._clock = clock
        self._holders: dict[bytes, Item] = {}
        self._behind: dict[bytes, list[Item]] = {}
        self.created = self.retried = 0
        self._known = 0.0  # share of duplicates among what was offered lately
        self._offers: Batches[Item] = Batches(
            "claim",
            self._claim,
            tasks,
            size=batch,
            calls=calls,
            crumbs=CRUMBS,
            worth=self._window.worth,
            room=self._room,
            reserve=self._window.reserve,
        )
        self._due: set[Item] = set()  # offered ones that have an entry: if that is gone, they must not make another
        self._again: Batches[Item] = Batches("claim again", self._claim_again, tasks, size=batch, calls=1)
        self._seen_before: Batches[Item] = Batches("seen before", self._look_back, tasks, size=batch, calls=1)
        tasks.spawn(self.waiting.watch(clock), "waiting")

    @property
    def open(self) -> int:
        """Claims that have not ended, those being made included."""
        return self._window.open

    @property
    def waiting(self) -> Waiting:
        """What waits for others, or for its time."""
        return self._judge.waiting

    @property
    def answers(self) -> Counter[Answer]:
        """What rows meant, so far."""
        return self._judge.answers

    def offer(self, items: Iterable[Item], *, more: bool = False) -> None:
        """Claim these when there is room; `more` promises `all_offered()` in a moment, and others before that."""
        self._offers.extend(items, more=more)

    def all_offered(self) -> None:
        self._offers.gathered()

    def look_back(self, items: Iterable[Item]) -> list[Item]:
        """Look up, before claiming, items whose position was finished longer ago than their entry is kept."""
        fresh = []
        for item in items:
            if item.lane is not None and item.lane.may_be_forgotten(item.offset, item.plan.operation):
                self._seen_before.add(item)
            else:
                fresh.append(item)
        return fresh

    def offer_one(self, item: Item) -> None:
        """Offer an item whatever its handler's circuit says."""
        item.stage = Stage.OFFERED
        if item.lane is not None and item.offset < item.lane.seen_below:
            self._offers.extend(self.look_back((item,)))
        else:
            self._offers.add(item)

    @property
    def behind(self) -> int:
        """Items that wait for one that has their key in this process."""
        return sum(len(items) for items in self._behind.values())

    def reopen(self) -> None:
        """What could not be claimed for a while may be claimed again."""
        self._offers.kick()

    def unstarted(self) -> list[Item]:
        """Items that hold a claim and have not started."""
        return [item for item in self._holders.values() if item.stage is Stage.CLAIMED]

    def judge_again(self, item: Item) -> None:
        """Offer the item once more: the row decides what it is now."""
        if item.revoked:
            return
        if not item.may_claim:
            item.stage = Stage.LINED_UP
            return
        item.stage = Stage.OFFERED
        if not self._owner.wishes.holds(item):
            self.offer_one(item)

    def offer_behind(self, item: Item) -> None:
        """Offer the next of the strand that has no claim yet, if it may be claimed behind this one, which has one."""
        following = item.next
        if following is not None and following.stage is Stage.CLAIMED:
            following = following.next
        if following is None or following.stage is not Stage.LINED_UP:
            return
        ahead = following.ahead
        if ahead is not None and not ahead.first and self._window.scarce:
            # Where room is scarce it is for the first ones: three claims for each line would let fewer lines run.
            return
        self.judge_again(following)

    def claim_again(self, item: Item) -> None:
        """Its entry failed provably and is due: claim it once more; it needs its key, and room, first."""
        item.stage = Stage.OFFERED
        self._due.add(item)
        self._offers.add(item)

    def over(self, item: Item, *, again: bool = False) -> None:
        """The item's claim has ended; with `again` it is judged by the row, as are those that waited for it here."""
        self._window.open -= 1
        if self._holders.get(item.id) is item:
            del self._holders[item.id]
        if again:
            self.judge_again(item)
            follower = item.next
            while follower is not None and follower.stage is Stage.CLAIMED:
                # It would wait with a claim for one that has none, and may take the room that one needs.
                self._owner.give_back(follower)
                follower = follower.next
        behind = self._behind.pop(item.id, None)
        if behind:
            for waiter in behind:
                self.judge_again(waiter)
        self._offers.kick()

    def all_over(self, items: Sequence[Item]) -> None:
        """The claims of these have ended for good."""
        holders = self._holders
        for item in items:
            if holders.get(item.id) is item:
                del holders[item.id]
        self._window.open -= len(items)
        if self._behind:
            for item in items:
                for waiter in self._behind.pop(item.id, ()):
                    self.judge_again(waiter)
        self._offers.kick()

    def tick(self) -> None:
        """Park what has waited too long for a claim of its own key here; claim what waits for a call that hangs."""
        self._offers.gathered()
        now = self._clock()
        for id_, items in list(self._behind.items()):
            impatient = [item for item in items if now - item.waiting_since >= self._hold]
            if impatient:
                self._behind[id_] = [item for item in items if item not in impatient]
                for item in impatient:
                    if not item.revoked:
                        self._judge.too_long(item)

    def _room(self) -> int:
        if self._owner.closed:
            return 0
        return self._window.room(self._offers.ready, self._owner.completing, self._owner.crowd)

    async def _claim(self, offered: list[Item]) -> None:
        batch = self._hold_keys(offered)
        self._window.open -= len(offered) - len(batch)
        if self._due:
            batch = self._not_due(batch)
            self._due.difference_update(offered)
        if not batch:
            self._offers.kick()
            return
        offered_now = len(batch)
        batch = await self._filtered(batch)
        if not batch:
            return
        sent = self._clock()
        claimed = await self._claims.claim(batch, look_first=self._known > _MOSTLY)
        if claimed.all_won:
            self._learn((offered_now - len(batch)) / offered_now)
            self.created += len(batch)
            self._owner.won_all(batch, claimed.fence, sent)
            return
        lost = offered_now - len(batch)
        replayed: list[tuple[Item, Row]] = []
        # In the order of arrival, not of the ids: strands start in order.
        for item in batch:
            won = claimed.winner(item.id)
            if won is not None:
                self._won(item, won, sent)
                continue
            lost += 1
            row = claimed.rows.get(item.id)
            if row is not None and not item.revoked:
                match self._judge.answer(item, row):
                    case Answer.REPLAY:
                        replayed.append((item, row))
                        continue
                    case Answer.DUE:
                        # It keeps the key: those behind it would otherwise take it, find it due, and so on for ever.
                        self._again.add(item)
                        continue
            self.over(item)
            self._judge.judge(item, row)
        self.created += offered_now - lost
        self._learn(lost / offered_now)
        if replayed:
            self._replay(replayed)
            if self._filter is not None:
                self._filter.remember([row for _, row in replayed])

    def _learn(self, share: float) -> None:
        self._known += (share - self._known) / 4

    def _replay(self, answered: Sequence[tuple[Item, Row]]) -> None:
        """Duplicates of completed entries that were offered: answered, all at once."""
        self.answers[Answer.REPLAY] += len(answered)
        self.all_over([item for item, _ in answered])
        self._owner.replayed(answered)

    async def _filtered(self, batch: list[Item]) -> list[Item]:
        """Answer duplicates the filter knows, and give the rest; not asked while duplicates are rare."""
        if self._filter is None or self._known < _SOME or not self._filter.open:
            return batch
        rows = await self._filter.look_up({item.id: item.fingerprint for item in batch})
        if not rows:
            return batch
        known = [(item, rows[item.id]) for item in batch if item.id in rows]
        self._replay([(item, row) for item, row in known if not item.revoked])
        for item, _ in known:
            if item.revoked:
                self.over(item)
        rest = [item for item in batch if item.id not in rows]
        if not rest:
            self._learn(1.0)
        return rest

    async def _look_back(self, batch: list[Item]) -> None:
        rows = await self._claims.look_up(list({item.id for item in batch}))
        for item in batch:
            row = rows.get(item.id)
            if row is not None:
                self._judge.judge(item, row)
            elif not item.revoked:
                self._owner.end(item)
                detail = "finished before, longer ago than its entry is kept: it may have been done"
                self._teller.dead_letter(item, "beyond_ttl", detail)

    async def _claim_again(self, batch: list[Item]) -> None:
        """Claim what failed provably and is due; these have their keys, and their places in the window."""
        if self._owner.closed:
            # They give both back: what runs alone starts only when nobody else has a place.
            for item in batch:
                self.over(item, again=True)
            return
        sent = self._clock()
        won = await self._claims.claim_again(batch)
        self.retried += len(won)
        for item in batch:
            if item.id in won:
                self._won(item, won[item.id], sent)
            else:
                self.over(item, again=True)

    def _hold_keys(self, offered: Iterable[Item]) -> list[Item]:
        """Items to claim now; those whose key is in another item's hands wait for that one."""
        batch = []
        hold = self._holders.setdefault
        for item in offered:
            if item.lane is not None and item.lane.revoked:
                continue
            holder = hold(item.id, item)
            if holder is item:
                batch.append(item)
                continue
            item.stage = Stage.WAITING
            item.waiting_since = item.waiting_since or self._clock()
            self._behind.setdefault(item.id, []).append(item)
            if item.first and not holder.first and holder.stage is Stage.CLAIMED:
                # The holder only waits for its turn: it gives way to one whose turn it is.
                self._owner.give_back(holder)
        return batch

    def _not_due(self, batch: list[Item]) -> list[Item]:
        """Claim again, with their keys and their places, those that are due; gives the others."""
        for item in batch:
            if item in self._due:
                self._again.add(item)
        return [item for item in batch if item not in self._due]

    def _won(self, item: Item, won: Won, sent: float) -> None:
        item.fence = won.fence
        item.attempts, item.crashes, item.failed_at = won.attempts, won.crashes, won.failed_at
        item.claimed_at = sent
        item.stage = Stage.CLAIMED
        self._owner.won(item)
