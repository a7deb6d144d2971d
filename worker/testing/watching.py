"""The engine's own pipeline and caller, watched: outcomes, runs, errors and effects are noted, crash points kept."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from worker.engine.calling import Caller, Committed, Ended
from worker.engine.items import Item
from worker.engine.pipeline import Limits, Outside, Pipeline
from worker.rules.claims import Blocks, Outcome
from worker.rules.context import Effect, Transaction
from worker.rules.results import Result
from worker.testing.deliveries import Deliveries, Fate
from worker.testing.effects import Effects, Entered
from worker.testing.memory.database import MemoryTransaction


class WatchedPipeline(Pipeline):
    """Tells who won and what is finished."""

    def __init__(
        self, outside: Outside, limits: Limits, *, fate: Fate, deliveries: Deliveries, after: Callable[[], None]
    ) -> None:
        super().__init__(outside, limits)
        self._fate = fate
        self._deliveries = deliveries
        self._after = after

    def won(self, item: Item) -> None:
        if not self._fate.strikes(item, "after_claim"):
            super().won(item)

    def won_all(self, items: Sequence[Item], fence: int, sent: float) -> None:
        for item in items:
            if not self._fate.strikes(item, "after_claim"):
                super().won_all((item,), fence, sent)

    def finish_all(self, items: Sequence[Item], outcome: Outcome) -> None:
        for item in items:
            if self._fate.strikes(item, "before_commit"):
                return
            delivery = self._deliveries.of(item.record)
            delivery.id = getattr(item, "id", None)
            super().finish_all((item,), outcome)
            self._after()
            delivery.decide(outcome)


class WatchedCaller(Caller):
    """Calls handlers with watched effects and transactions."""

    def __init__(self, *ports: Any, fate: Fate, deliveries: Deliveries, effects: Effects, **settings: Any) -> None:
        super().__init__(*ports, **settings)
        self._fate = fate
        self._deliveries = deliveries
        self._effects = effects

    async def call(self, item: Item) -> Ended:
        delivery = self._deliveries.of(item.record)
        delivery.id = item.id
        delivery.runs += 1
        ended = await super().call(item)
        if isinstance(ended, Result):
            await self._fate.reach(item, "before_completion")
        elif isinstance(ended, Committed):
            self._note(item)
        return ended

    async def _run(self, item: Item, effect: Effect | None, transaction: Transaction | None) -> Any:
        try:
            if effect is not None:
                return await super()._run(item, _WatchedEffect(effect, item, self._fate, self._note), None)
            await self._fate.reach(item, "before_effect")
            if isinstance(transaction, MemoryTransaction):
                return await self._run_in_transaction(item, transaction)
            self._note(item)
            await self._fate.reach(item, "inside_effect")
            value = await super()._run(item, None, transaction)
            await self._fate.reach(item, "after_effect")
        except (Exception, asyncio.CancelledError) as error:
            self._deliveries.of(item.record).errors.append(error)
            raise
        return value

    async def _run_in_transaction(self, item: Item, transaction: MemoryTransaction) -> Any:
        async def began() -> None:
            await self._fate.reach(item, "inside_effect")

        transaction.began = began
        value = await super()._run(item, None, transaction)
        await self._fate.reach(item, "after_effect")
        # Its completion is the commit that comes next.
        await self._fate.reach(item, "before_completion")
        return value

    def _note(self, item: Item) -> None:
        tenant = None if item.tenant is None else item.tenant.decode()
        self._effects.note(Entered(item.route.name, item.key.decode(), tenant, item.fence))


class _WatchedEffect(Effect):
    """The engine's effect block, with crash points around and inside it."""

    __slots__ = ("_fate", "_item", "_note", "_real")

    def __init__(self, real: Effect, item: Item, fate: Fate, note: Callable[[Item], None]) -> None:
        super().__init__(Blocks(), (), lambda: True)
        self._real = real
        self._item = item
        self._fate = fate
        self._note = note

    async def __aenter__(self) -> Self:
        await self._fate.reach(self._item, "before_effect")
        try:
            await self._real.__aenter__()
        finally:
            self.refused = self._real.refused
        self._note(self._item)
        await self._fate.reach(self._item, "inside_effect")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._fate.reach(self._item, "after_effect")
        await self._real.__aexit__(kind, error, trace)
