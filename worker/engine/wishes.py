"""Wishes: which records operators want held back or skipped; followed from the moment it is known."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from worker.engine.holding import Holding
from worker.engine.items import Item, Stage
from worker.engine.routes import Route
from worker.engine.telling import Teller
from worker.rules.lanes import Lane
from worker.rules.orders import Position


class Owner(Protocol):
    """Who has the items."""

    def end(self, item: Item) -> None: ...
    def give_back(self, item: Item) -> None: ...
    def unstarted(self) -> list[Item]: ...


class Wishes:
    """The wishes of now, and what follows from them for each record."""

    def __init__(self, owner: Owner, holding: Holding, teller: Teller, room: asyncio.Event) -> None:
        self._owner = owner
        self._holding = holding
        self._teller = teller
        self._room = room
        self._skips: Mapping[Position, str] = {}  # records to be dead-lettered, with the operator's reason
        self.paused_topics: frozenset[str] = frozenset()  # those that no handler may take records of
        self.any = False  # whether operators hold back or skip anything: one look per record

    def follow(self, paused: Mapping[Route, frozenset[str]], skips: Mapping[Position, str]) -> None:
        """Hold back and skip what operators want from now on; handlers that run may end.

        `paused` names the topics of each handler whose records are held; every route is in it.
        """
        open_topics = {t for route, topics in paused.items() for t in route.handler.topics if t not in topics}
        self.paused_topics = frozenset(t for topics in paused.values() for t in topics if t not in open_topics)
        self._skips = skips
        self.any = bool(skips) or any(paused.values())
        for route, topics in paused.items():
            route.paused = topics
        for item in self._owner.unstarted() if self.any else ():
            if self.against(item):
                self._owner.give_back(item)
        for route in paused:
            self._holding.let_go(route)
        self._room.set()

    def skip_in_hand(self, lane: Lane, positions: Collection[Position]) -> None:
        """Skip records that were read already and wait; one that is in a call or runs is skipped if it comes back."""
        offsets = {
            offset for topic, partition, offset in positions if (topic, partition) == (lane.topic, lane.partition)
        }
        for item in lane.watermark if offsets else ():
            if item.offset not in offsets or item.finished or item.revoked:
                continue
            if item.stage is Stage.LINED_UP or (item.stage is Stage.OFFERED and self._holding.withdraw(item)):
                self.skips(item)

    def holds(self, item: Item) -> bool:
        """Keep an item back while its handler's circuit is open or an operator wants it; skip one that is unwanted."""
        if not item.route.circuit.open and not self.any:
            return False
        if self.skips(item):
            return True
        if item.route.circuit.open or item.record.topic in item.route.paused:
            self._holding.take(item)
            return True
        return False

    def skips(self, item: Item) -> bool:
        """Dead-letter an item that an operator wants skipped."""
        if not self.any or not self._is_skipped(item):
            return False
        why = self._skips[item.record.topic, item.record.partition, item.offset]
        self._owner.end(item)
        self._teller.dead_letter(item, "skipped", f"skipped by an operator: {why}")
        return True

    def against(self, item: Item) -> bool:
        """Whether an operator does not want the item to run now."""
        return self.any and (item.record.topic in item.route.paused or self._is_skipped(item))

    def _is_skipped(self, item: Item) -> bool:
        return item.lane is not None and (item.record.topic, item.record.partition, item.offset) in self._skips
