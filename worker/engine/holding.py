"""Holding back: records of a handler whose circuit is open, or that an operator paused, wait without a claim.

So a crash leaves none of them in doubt, and a rebalance has nothing to give back.
"""

from collections import deque
from collections.abc import Callable

from worker.engine.calling import Ended, Unfinished
from worker.engine.items import Item
from worker.engine.ports import Notice
from worker.engine.routes import Route


class Holding:
    """The records held back, by handler."""

    def __init__(self, offer: Callable[[Item], None], clock: Callable[[], float], notice: Notice) -> None:
        self._offer = offer
        self._clock = clock
        self._notice = notice
        self._routes: set[Route] = set()

    def __len__(self) -> int:
        return sum(len(route.held) for route in self._routes)

    def take(self, item: Item) -> None:
        """Keep back an item whose handler's circuit is open, or that is paused."""
        self.passed(item)
        self._routes.add(item.route)
        item.route.held.append(item)
        if item.lane is not None:
            item.lane.kept_back += 1

    def withdraw(self, item: Item) -> bool:
        """Let go of one item that is held back; False when it is not."""
        if item not in item.route.held:
            return False
        item.route.held.remove(item)
        self._left(item)
        return True

    def passed(self, item: Item) -> None:
        """The one that was let through came to an end without being executed: it says nothing, the next may try."""
        route = item.route
        if route.trial is item:
            route.trial = None
            route.circuit.not_tried()

    def ended(self, item: Item, ended: Ended) -> None:
        """Learn from the end of an execution."""
        route = item.route
        error = ended.cause if isinstance(ended, Unfinished) and ended.counts else None
        if not route.circuit.ended(error, self._clock()):
            return
        if route.circuit.open:
            self._notice("circuit_opened", operation=route.name, error=error, alert="its records are held")
        else:
            self._notice("circuit_closed", operation=route.name, next="its records run again")
            route.trial = None
            self.let_go(route)

    def tick(self) -> None:
        """Let one record of each open circuit try when its time has come."""
        for route in self._routes:
            while route.held and route.held[0].revoked:
                route.held.popleft()
            if route.held and route.circuit.open:
                self._try_one(route)

    def let_go(self, route: Route) -> None:
        """Offer again what nothing holds back any more."""
        if route.circuit.open:
            return
        held, route.held = route.held, deque()
        for item in held:
            if item.revoked:
                continue
            if item.record.topic in route.paused:
                route.held.append(item)
            else:
                self._left(item)
                self._offer(item)

    def _try_one(self, route: Route) -> None:
        item = next((item for item in route.held if item.record.topic not in route.paused), None)
        if item is not None and route.circuit.may_try(self._clock()):
            self.withdraw(item)
            route.trial = item
            self._offer(item)

    @staticmethod
    def _left(item: Item) -> None:
        if item.lane is not None:
            item.lane.kept_back -= 1
