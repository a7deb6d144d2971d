"""Finishing: how claims end is made durable in batches, and only then their records are finished."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from worker.engine.batches import CRUMBS, Batches
from worker.engine.items import Item
from worker.engine.ports import Finals, Notice
from worker.engine.tasks import Tasks
from worker.rules.results import Result
from worker.rules.writes import Doubted, Failed, Released

_TOGETHER = 0.002  # seconds


class Owner(Protocol):
    """Who moves items on once their claims have ended."""

    @property
    def crowd(self) -> int: ...
    def completed(self, items: Sequence[Item]) -> None: ...
    def claim_over(self, item: Item, *, again: bool = False) -> None: ...


class Finisher:
    """The batched ends of claims."""

    def __init__(
        self,
        finals: Finals,
        owner: Owner,
        tasks: Tasks,
        *,
        batch: int,
        now: Callable[[], float],
        notice: Notice,
    ) -> None:
        self._finals = finals
        self._owner = owner
        self._now = now
        self._notice = notice
        self._chance = random.Random()
        self._tasks = tasks
        self._stored: list[Item] = []
        self._done: Batches[Item] = Batches("complete", self._complete, tasks, size=batch, calls=2, crumbs=CRUMBS)
        self._failed: Batches[tuple[Item, str]] = Batches("fail", self._fail, tasks, size=batch, calls=1)
        self._doubted: Batches[tuple[Item, str]] = Batches("doubt", self._doubt, tasks, size=batch, calls=1)
        self._released: Batches[Item] = Batches("release", self._release, tasks, size=batch, calls=1)
        self._all = (self._done, self._failed, self._doubted, self._released)

    @property
    def busy(self) -> int:
        return sum(len(batches) for batches in self._all) + len(self._stored)

    @property
    def completing(self) -> int:
        """How many claims are about to be over."""
        return len(self._done)

    def tick(self) -> None:
        """Time has passed: results do not wait for a write that hangs."""
        self._done.kick()

    def complete(self, item: Item, result: Result) -> None:
        item.result = result
        self._done.add(item)

    def completed(self, item: Item) -> None:
        """Its result is stored already: tell the owner; while others crowd, together with those that follow."""
        self._stored.append(item)
        if len(self._stored) == 1:
            self._tasks.spawn(self._tell_stored(), "stored")

    async def _tell_stored(self) -> None:
        await asyncio.sleep(_TOGETHER if self._owner.crowd else 0)
        stored, self._stored = self._stored, []
        self._owner.completed(stored)

    def fail(self, item: Item, error: str) -> None:
        self._failed.add((item, error))

    def doubt(self, item: Item, error: str) -> None:
        self._doubted.add((item, error))

    def release(self, item: Item) -> None:
        self._released.add(item)

    async def _complete(self, batch: list[Item]) -> None:
        now = self._now()
        done = [item for item in batch if now - item.claimed_at < item.route.plan.ttl / 3]
        late = [] if len(done) == len(batch) else [item for item in batch if item not in done]
        if done:
            undecided = await self._finals.complete(done)
            if undecided:
                late += [item for item in done if item.id in undecided]
        refused: set[bytes] = set()
        if late:
            refused = await self._finals.complete_late(late)
            self._notice("late_results", accepted=len(late) - len(refused), refused=len(refused))
        for item in [item for item in batch if item.id in refused] if refused else ():
            # Another decision stands in the row, and the effect may have happened twice: kept in its history.
            alert = "possible double effect, unless a verdict about this very claim came first"
            self._notice("result_refused", operation=item.route.name, fence=item.fence, alert=alert)
            self._owner.claim_over(item, again=True)
        self._owner.completed([item for item in batch if item.id not in refused] if refused else batch)

    async def _fail(self, batch: list[tuple[Item, str]]) -> None:
        delays = [i.route.handler.retries.delay(i.attempts + 1, self._chance).total_seconds() for i, _ in batch]
        failed = [Failed(i.id, i.fence, d, e) for (i, e), d in zip(batch, delays, strict=True)]
        await self._finals.fail(failed)
        for item, error in batch:
            self._notice("attempt_failed", operation=item.route.name, attempt=item.attempts + 1, error=error)
            self._owner.claim_over(item, again=True)

    async def _doubt(self, batch: list[tuple[Item, str]]) -> None:
        undecided = await self._finals.doubt([Doubted(i.id, i.fence, e) for i, e in batch])
        for item, error in batch:
            if item.id not in undecided:
                self._notice("entry_in_doubt", operation=item.route.name, fence=item.fence, error=error, next="parked")
            self._owner.claim_over(item, again=True)

    async def _release(self, batch: list[Item]) -> None:
        await self._finals.release([Released(i.id, i.fence) for i in batch])
        for item in batch:
            self._owner.claim_over(item, again=True)
