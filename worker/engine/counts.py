"""Counts: what became of records, for whoever watches; per batch, never a label or a timer per record."""

import time
from collections import Counter
from collections.abc import Sequence

from worker.engine.items import Item
from worker.engine.routes import Route
from worker.rules.claims import Outcome
from worker.rules.lanes import Lane


class Counts:
    """The outcomes of one pipeline; those of each handler are kept with its route."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()  # records that no handler could be found for, by topic
        # Topic and seconds of some records, if someone wants to know.
        self.delays: list[tuple[str, float]] | None = None

    def count(self, items: Sequence[Item], outcome: Outcome) -> None:
        """The outcome of these is durable."""
        routes: Counter[Route | None] = Counter([item.route for item in items])
        for route, count in routes.items():
            if route is None:
                self.refused.update(item.record.topic for item in items if item.route is None)
            elif len(route.outcomes) == 1:
                (counts,) = route.outcomes.values()
                counts[outcome] = counts.get(outcome, 0) + count
            else:
                (first, *_) = route.outcomes.values()
                for topic, some in Counter(item.record.topic for item in items if item.route is route).items():
                    # A record of a file counts as one of the first topic: names of files would be labels without end.
                    counts = route.outcomes.get(topic, first)
                    counts[outcome] = counts.get(outcome, 0) + some

    def delayed(self, lane: Lane, offset: int) -> None:
        """A record whose delay is measured is finished."""
        timestamp = lane.watched.pop(offset)
        if self.delays is not None and timestamp > 0:
            self.delays.append((lane.topic, max(0.0, time.time() - timestamp / 1000)))
