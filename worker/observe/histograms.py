"""Histograms as plain numbers: on the path of a record observations only gather in a list; here they are counted."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence


class Histogram:
    """How many observations fell between the bounds, and their sum."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, values: list[float]) -> None:
        """Count many at once: sorting them and looking up each bound is cheaper than looking up each value."""
        values.sort()
        below = 0
        for number, bound in enumerate(self._bounds):
            upto = bisect_right(values, bound)
            self._counts[number] += upto - below
            below = upto
        self._counts[-1] += len(values) - below
        self.total += sum(values)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Cumulative counts by upper bound, as they are exposed."""
        upto = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            upto += count
            yield str(bound), upto


class Histograms:
    """One histogram per set of labels, made when the first observation comes."""

    def __init__(self, name: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._bounds = bounds
        self._made: dict[tuple[str, ...], Histogram] = {}

    def of(self, *labels: str) -> Histogram:
        found = self._made.get(labels)
        return found if found is not None else self._made.setdefault(labels, Histogram(self._bounds))

    def samples(self) -> Iterator[tuple[str, tuple[str, ...], Histogram]]:
        for labels, histogram in list(self._made.items()):
            yield self._name, labels, histogram
