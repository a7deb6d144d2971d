"""Round trips to Postgres and Redis: how long, and how many broke."""

import time
from collections.abc import Callable, Iterator

from worker.observe.collector import Sample
from worker.observe.histograms import Histograms
from worker.observe.table import BY_NAME

_DURATION = "oncebox_store_duration_seconds"
_ERRORS = "oncebox_store_errors_total"


class Stores:
    """Told of every round trip, some of them by the session's thread: each statement is one thread's only."""

    def __init__(self) -> None:
        self._durations = Histograms(_DURATION, BY_NAME[_DURATION].buckets)
        self._errors: dict[tuple[str, str], int] = {}
        self._heard: dict[str, float] = {}

    def watch(self, store: str) -> Callable[[str, float, bool], None]:
        """Who a store's client tells: operation, seconds, whether it broke."""

        def told(op: str, seconds: float, broke: bool) -> None:
            self._durations.of(store, op).observe(seconds)
            self._errors[store, op] = self._errors.get((store, op), 0) + broke
            if not broke:
                self._heard[store] = time.monotonic()

        return told

    def heard(self, store: str) -> float:
        """When a store answered last, by `time.monotonic`; 0 if it never did."""
        return self._heard.get(store, 0.0)

    def samples(self) -> Iterator[Sample]:
        yield from self._durations.samples()
        for labels, count in list(self._errors.items()):
            yield _ERRORS, labels, count
