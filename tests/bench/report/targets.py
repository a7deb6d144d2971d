"""What must be reached on two cores, and what was."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.contenders import OURS
from tests.bench.measure import Measure
from tests.bench.report.runs import Runs, Spread, percentile, rate, seconds, worker_us

REDIS = "oncebox+redis"


@dataclass(frozen=True, slots=True)
class Target:
    """One promise about speed."""

    workload: str
    what: str
    limit: float
    at_least: bool
    found: Spread

    @property
    def reached(self) -> bool:
        return self.found.median >= self.limit if self.at_least else self.found.median <= self.limit

    @property
    def wanted(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}"

    @property
    def verdict(self) -> str:
        if self.reached:
            return "yes"
        away = abs(self.found.median - self.limit) / self.limit * 100
        return f"**no**, {away:.0f} % away"


def targets(runs: Runs) -> list[Target]:
    """Every promise that this benchmark measured."""
    return [target for find in (_unique, _duplicates, _waits, _transactional, _latency, _backlog, _rows, _processes,
                                  _pruning)
            for target in find(runs)]  # fmt: skip


def _least(workload: str, what: str, limit: float, found: Spread | None) -> Iterator[Target]:
    if found is not None:
        yield Target(workload, what, limit, True, found)


def _most(workload: str, what: str, limit: float, found: Spread | None) -> Iterator[Target]:
    if found is not None:
        yield Target(workload, what, limit, False, found)


def _unique(runs: Runs) -> Iterator[Target]:
    ours = runs.of("a", OURS)
    for contender, limit in {"tuned32": 8, "pooled32": 8, "faststream": 12, "idemkit": 12, "raw": 0.4}.items():
        yield from _least("a", f"rate of oncebox / {contender}", limit, runs.ratio(ours, runs.of("a", contender), rate))
    yield from _most("a", "worker CPU, us per message", 28, runs.spread("a", OURS, worker_us))
    with_redis = runs.ratio(runs.of("a", REDIS), ours, worker_us)
    yield from _most("a", "worker CPU with Redis switched on / without", 1.05, with_redis)


def _duplicates(runs: Runs) -> Iterator[Target]:
    ours, filtered = runs.of("b", OURS), runs.of("b", REDIS)
    yield from _least("b", "rate of oncebox / raw", 0.8, runs.ratio(ours, runs.of("b", "raw"), rate))
    yield from _least("b", "rate with Redis, filter warm / without", 1, runs.ratio(filtered, ours, rate))
    if all("postgres" in one.server_us for one in filtered):
        spread = runs.spread("b", REDIS, lambda one: one.server_us["postgres"])
        yield from _most("b", "Postgres CPU with Redis, us per message", 1, spread)


def _waits(runs: Runs) -> Iterator[Target]:
    for case in runs.cases("d"):
        found = runs.ratio(runs.of("d", OURS, case), runs.of("d", "floor", case), seconds)
        yield from _most("d", f"time of oncebox / floor, {case}", 1.4 if case == "1000 keys" else 1.15, found)


def _transactional(runs: Runs) -> Iterator[Target]:
    found = runs.ratio(runs.of("e", OURS), runs.of("e", "inserting"), rate)
    yield from _least("e", "rate of oncebox / BEGIN, INSERT, COMMIT", 0.55, found)


def _latency(runs: Runs) -> Iterator[Target]:
    found = runs.ratio(runs.of("f", OURS), runs.of("f", "arriving"), _middle)
    yield from _most("f", "p50 of oncebox / (bare delay p50 + two commits p50)", 1.3, found)


def _middle(one: Measure) -> float:
    if one.contender == OURS:
        return percentile(one.detail["latencies_ms"], 50)
    return percentile(one.detail["delays_ms"], 50) + percentile(one.detail["commits_ms"], 50)


def _backlog(runs: Runs) -> Iterator[Target]:
    found = [one for one in runs.of("g", OURS) if len(one.detail["memory"]) >= 4]
    if found:
        yield from _most("g", "most / least memory of the last half", 1.05, Spread(tuple(map(_growth, found))))
    yield from _most("g", "peak memory, MB", 150, runs.spread("g", OURS, lambda one: one.rss_mb))


def _growth(one: Measure) -> float:
    last_half = [mb for at, mb in one.detail["memory"] if at >= one.seconds / 2]
    return float(max(last_half) / min(last_half))


def _rows(runs: Runs) -> Iterator[Target]:
    for case in runs.cases("h")[1:]:
        found = runs.ratio(runs.of("h", OURS, case), runs.of("h", OURS, runs.cases("h")[0]), rate)
        yield from _least("h", f"rate at {case} / empty table", 0.7, found)


def _processes(runs: Runs) -> Iterator[Target]:
    found = runs.ratio(runs.of("i", OURS, "2 processes"), runs.of("i", OURS, "1 processes"), rate)
    yield from _least("i", "rate of two processes / one", 1.3, found)


def _pruning(runs: Runs) -> Iterator[Target]:
    found = [one.detail for one in runs.of("j", OURS) if one.detail["busy"]["messages"]]
    if found:
        ratios = tuple(one["busy"]["p99"] / one["quiet"]["p99"] for one in found)
        yield from _most("j", "p99 from produce to completed while pruning / without", 2, Spread(ratios))
