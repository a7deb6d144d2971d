"""Questions to the measures. Whatever is compared is compared inside one round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from tests.bench.measure import Measure

Value = Callable[[Measure], float]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and what it is the median of."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    def shown(self, digits: int = 2) -> str:
        if len(self.values) == 1:
            return f"{self.values[0]:,.{digits}f}"
        return f"{self.median:,.{digits}f} ({min(self.values):,.{digits}f}-{max(self.values):,.{digits}f})"


@dataclass(frozen=True, slots=True)
class Runs:
    """All measures of one benchmark."""

    measures: Sequence[Measure]

    def of(self, workload: str, contender: str | None = None, case: str = "") -> list[Measure]:
        return [
            one
            for one in self.measures
            if one.workload == workload and one.case == case and contender in {None, one.contender}
        ]

    def cases(self, workload: str) -> list[str]:
        return list(dict.fromkeys(one.case for one in self.measures if one.workload == workload))

    def spread(self, workload: str, contender: str, value: Value, case: str = "") -> Spread | None:
        found = tuple(value(one) for one in self.of(workload, contender, case))
        return Spread(found) if found else None

    def ratio(self, ours: Sequence[Measure], theirs: Sequence[Measure], value: Value) -> Spread | None:
        """Ours over theirs, round by round."""
        by_round = {one.round: value(one) for one in theirs}
        found = tuple(value(one) / by_round[one.round] for one in ours if by_round.get(one.round))
        return Spread(found) if found else None


def rate(one: Measure) -> float:
    return one.rate


def seconds(one: Measure) -> float:
    return one.seconds


def worker_us(one: Measure) -> float:
    return one.worker_us


def percentile(values: Sequence[float], percent: int) -> float:
    """Of the values themselves."""
    if len(values) < 2:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]
