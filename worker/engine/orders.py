"""Orders: what operators pause and skip is read every second, and followed by the pipeline."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from worker.engine.janitor import Duty
from worker.engine.pipeline import Pipeline
from worker.engine.ports import Notice
from worker.engine.routes import Route
from worker.rules.lanes import Lane
from worker.rules.orders import Pause, Position
from worker.rules.writes import Parked

_EVERY = 1.0


class Book(Protocol):
    """Where orders are written."""

    async def pauses(self) -> list[Pause]: ...
    async def skips(self, group: str) -> dict[Position, str]: ...
    async def skipped(self, group: str, positions: Collection[Position]) -> None: ...


class Orders:
    """Follows the orders of operators in one process; while they cannot be read, the last ones hold."""

    def __init__(
        self,
        book: Book,
        pipeline: Pipeline,
        routes: Sequence[Route],
        *,
        group: str,
        lanes: Callable[[], Sequence[Lane]],
        notice: Notice,
    ) -> None:
        self._book = book
        self._pipeline = pipeline
        self._routes = routes
        self._group = group
        self._lanes = lanes
        self._notice = notice
        self._pauses: set[Pause] = set()
        self._skips: Mapping[Position, str] = {}

    def duty(self) -> Duty:
        return Duty("orders", _EVERY, self.once)

    async def once(self) -> None:
        """Read the orders and follow them; call it before the first record is read, too."""
        pauses = {pause for pause in await self._book.pauses() if self._concerns(pause)}
        skips = await self._book.skips(self._group)
        if pauses != self._pauses or skips != self._skips:
            self._follow(pauses, skips)
        if skips:
            await self._finish(skips)

    def _follow(self, pauses: set[Pause], skips: Mapping[Position, str]) -> None:
        for pause in sorted(pauses - self._pauses, key=str):
            self._notice("paused", **{pause.what: pause.name}, reason=pause.reason, next="its records are held")
        for pause in sorted(self._pauses - pauses, key=str):
            self._notice("resumed", **{pause.what: pause.name}, next="its records run again")
        new = skips.keys() - self._skips.keys()
        self._pauses, self._skips = pauses, skips
        self._pipeline.follow({route: self._paused(route) for route in self._routes}, skips)
        lanes = {(lane.topic, lane.partition): lane for lane in self._lanes()}
        for topic, partition, offset in new:
            if (lane := lanes.get((topic, partition))) is not None:
                self._pipeline.skip_in_hand(lane, offset)

    async def _finish(self, skips: Mapping[Position, str]) -> None:
        """Tell which skips are over: the group has committed past the record, so its outcome is durable."""
        lanes = {(lane.topic, lane.partition): lane.committed for lane in self._lanes() if not lane.revoked}
        over = [place for place in skips if (done := lanes.get(place[:2])) is not None and done > place[2]]
        if over:
            await self._book.skipped(self._group, over)
            self._notice("skips_done", records=[f"{t}/{p}@{o}" for t, p, o in over])

    def _concerns(self, pause: Pause) -> bool:
        if pause.what == "handler":
            return any(route.name == pause.name for route in self._routes)
        return any(pause.name in route.handler.topics for route in self._routes)

    def _paused(self, route: Route) -> frozenset[str]:
        topics = frozenset(route.handler.topics)
        if any(pause.what == "handler" and pause.name == route.name for pause in self._pauses):
            return topics
        return topics & {pause.name for pause in self._pauses if pause.what == "topic"}

    def unpaused(self, lot: Any) -> "Unpaused":
        """The parking lot without the records of paused handlers: they wait there, not in this process."""
        return Unpaused(lot, self._routes)


class Unpaused:
    """A parking lot from which nothing of a paused handler is taken."""

    def __init__(self, lot: Any, routes: Sequence[Route]) -> None:
        self._lot = lot
        self._routes = routes

    async def take_due(self, operations: Sequence[int], most: int, again_in: float, **more: Any) -> list[Parked]:
        paused = {r.plan.operation for r in self._routes if r.paused.issuperset(r.handler.topics)}
        wanted = [operation for operation in operations if operation not in paused]
        taken: list[Parked] = await self._lot.take_due(wanted, most, again_in, **more)
        return taken
