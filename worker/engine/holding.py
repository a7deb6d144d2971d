"""Holding back: handlers whose circuit is open, and everything else while one dangerous entry runs alone.

What is held back has no claim: a crash leaves nothing of it in doubt.
"""

from collections import deque
from collections.abc import Callable

from worker.engine.calling import Ended, Unfinished
from worker.engine.items import Item
from worker.engine.ports import Notice
from worker.engine.routes import Route

# An entry that saw this many workers die runs alone from then on.
DANGEROUS = 2


class Holding:
    """Decides what may be claimed and started now."""

    def __init__(self, offer: Callable[[Item], None], clock: Callable[[], float], notice: Notice) -> None:
        self._offer = offer
        self._clock = clock
        self._notice = notice
        self._routes: set[Route] = set()
        self._dangerous: deque[Item] = deque()
        self._alone: Item | None = None

    def __len__(self) -> int:
        return sum(len(route.held) for route in self._routes) + len(self._dangerous)

    @property
    def guarded(self) -> bool:
        """Whether a dangerous entry runs, or waits to run, alone: nothing else is claimed or started."""
        return self._alone is not None or bool(self._dangerous)

    def take(self, item: Item) -> None:
        """Keep back an item whose handler's circuit is open."""
        self._routes.add(item.route)
        item.route.held.append(item)

    def isolate(self, item: Item) -> None:
        """Queue a dangerous item to run alone."""
        self._dangerous.append(item)

    def next_alone(self) -> Item | None:
        """The dangerous item to start, now that nothing else runs."""
        if self._alone is not None or not self._dangerous:
            return None
        self._alone = self._dangerous.popleft()
        self._notice("runs_alone", operation=self._alone.route.name, crashes=self._alone.crashes)
        return self._alone

    def left(self, item: Item) -> None:
        """The item that ran alone does so no longer."""
        if self._alone is item:
            self._alone = None

    def ended(self, item: Item, ended: Ended) -> None:
        """Learn from the end of an execution."""
        self.left(item)
        route = item.route
        error = ended.error if isinstance(ended, Unfinished) and ended.counts else None
        if not route.circuit.ended(error, self._clock()):
            return
        if route.circuit.open:
            self._notice("circuit_opened", operation=route.name, error=error, alert="its records are held")
        else:
            self._notice("circuit_closed", operation=route.name, next="its records run again")
            self._let_go(route)

    def tick(self) -> None:
        """Let one record of each open circuit try when its time has come."""
        for route in self._routes:
            while route.held and route.held[0].revoked:
                route.held.popleft()
            if route.held and route.circuit.may_try(self._clock()):
                route.trial = route.held.popleft()
                self._offer(route.trial)

    def _let_go(self, route: Route) -> None:
        route.trial = None
        held, route.held = route.held, deque()
        for item in held:
            if not item.revoked:
                self._offer(item)
