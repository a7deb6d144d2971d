"""Orders: what operators pause and skip is read every second, and followed."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

from worker.engine.ports import Notice
from worker.engine.routes import Route
from worker.engine.wishes import Wishes
from worker.errors import ServiceUnavailable
from worker.rules.lanes import Lane
from worker.rules.orders import Pause, Skip

_EVERY = 1.0
_position = attrgetter("position")


class Book(Protocol):
    """Where orders are written."""

    async def pauses(self) -> list[Pause]: ...
    async def skips(self, group: str) -> list[Skip]: ...
    async def skipped(self, group: str, skips: Sequence[Skip]) -> None: ...
    async def goes_on(self, group: str, skip: Skip) -> None: ...


class Reader(Protocol):
    """Who reads the lanes."""

    @property
    def lanes(self) -> list[Lane]: ...
    def go_on(self, lane: Lane, offset: int) -> None: ...


class Orders:
    """Follows the orders of operators in one process; while they cannot be read, the last ones hold.

    `reader` is set by who reads a group's lanes; without one there is nothing to skip or to read on.
    """

    def __init__(self, book: Book, wishes: Wishes, routes: Sequence[Route], *, group: str, notice: Notice) -> None:
        self._book = book
        self._wishes = wishes
        self._routes = routes
        self._group = group
        self.reader: Reader | None = None
        self._notice = notice
        self._pauses: set[Pause] = set()
        self._skips: set[Skip] = set()

    async def watch(self) -> None:
        """Follow the orders, for ever."""
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self.once()
            except ServiceUnavailable as error:
                self._notice("orders_unread", error=str(error), next="the last ones hold")

    async def once(self) -> None:
        """Read the orders and follow them; call it before the first record is read, too."""
        pauses = {pause for pause in await self._book.pauses() if self._concerns(pause)}
        skips = set(await self._book.skips(self._group))
        if pauses != self._pauses or skips != self._skips:
            self._follow(pauses, skips)
        if skips and self.reader is not None:
            await self._look_after(skips, self.reader)

    async def _look_after(self, skips: set[Skip], reader: Reader) -> None:
        lanes = {(lane.topic, lane.partition): lane for lane in reader.lanes if not lane.revoked}
        # The lowest first: of two moves of one partition the later place wins.
        ours = [
            (skip, lane) for skip in sorted(skips, key=_position) if (lane := lanes.get(skip.position[:2])) is not None
        ]
        for skip, lane in ours:
            if skip.move and lane.held is not None and lane.position <= skip.offset:
                await self._go_on(lane, skip, reader)
        over = [s for s, lane in ours if lane.held is None and lane.committed is not None and s.is_over(lane.committed)]
        if over:
            await self._book.skipped(self._group, over)
            self._notice("skips_done", places=[str(skip) for skip in over])

    def _follow(self, pauses: set[Pause], skips: set[Skip]) -> None:
        for pause in sorted(pauses - self._pauses, key=str):
            self._notice("paused", **{pause.what: pause.name}, reason=pause.reason, next="its records are held")
        for pause in sorted(self._pauses - pauses, key=str):
            self._notice("resumed", **{pause.what: pause.name}, next="its records run again")
        new = {skip.position for skip in skips - self._skips if not skip.move}
        self._pauses, self._skips = pauses, skips
        wanted = {skip.position: skip.reason for skip in skips if not skip.move}
        self._wishes.follow({route: self._paused(route) for route in self._routes}, wanted)
        for lane in self.reader.lanes if new and self.reader is not None else ():
            self._wishes.skip_in_hand(lane, new)

    async def _go_on(self, lane: Lane, skip: Skip, reader: Reader) -> None:
        # In this order: held anew at a later place, the partition is told to be held after this.
        await self._book.goes_on(self._group, skip)
        if not lane.revoked:
            self._notice("partition_goes_on", partition=str(lane), was=lane.held, offset=skip.offset, why=skip.reason)
            reader.go_on(lane, skip.offset)

    def _concerns(self, pause: Pause) -> bool:
        if pause.what == "handler":
            return any(route.name == pause.name for route in self._routes)
        return any(pause.name in route.handler.topics for route in self._routes)

    def _paused(self, route: Route) -> frozenset[str]:
        topics = frozenset(route.handler.topics)
        if any(pause.what == "handler" and pause.name == route.name for pause in self._pauses):
            return topics
        return topics & {pause.name for pause in self._pauses if pause.what == "topic"}
