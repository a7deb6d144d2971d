"""Where the worker's CPU goes, per message: a part of the report (`python -m tests.bench --only p`)."""

import linecache
from collections import Counter
from collections.abc import Callable, Iterator

from tests.bench.sampler import Sampler, Spot
from tests.bench.stopwatch import Stopwatch


class SampledStopwatch(Stopwatch):
    """Samples from the assignment on."""

    def __init__(self, limit: int, sampler: Sampler) -> None:
        super().__init__(limit)
        self._sampler = sampler

    def start(self) -> None:
        if not self.running:
            super().start()
            self._sampler.start()


def as_text(sampler: Sampler, messages: int, lines: int) -> str:
    """Microseconds per message by module, function and line."""
    micros = sampler.cpu_seconds / messages / max(1, sampler.samples) * 1e6
    parts = [f"{sampler.cpu_seconds / messages * 1e6:.1f} us CPU per message, {sampler.samples} samples"]
    parts += _table("by module", sampler.spots, micros, key=lambda spot: _room(spot.module), most=30)
    by_function = _table(
        "by function", sampler.spots, micros, key=lambda spot: f"{_room(spot.module)}  {spot.function}", most=lines
    )
    parts += [*by_function, *_table("by line", sampler.spots, micros, key=_line, most=lines)]
    return "\n".join(parts)


def _table(title: str, spots: Counter[Spot], micros: float, *, key: Callable[[Spot], str], most: int) -> Iterator[str]:
    sums: Counter[str] = Counter()
    for spot, count in spots.items():
        sums[key(spot)] += count
    yield f"\nus/msg  {title}"
    for name, count in sums.most_common(most):
        yield f"{count * micros:6.2f}  {name}"


def _room(module: str) -> str:
    """Our modules by name, everyone else's by package."""
    return module if module.startswith(("worker.", "tests.")) else module.partition(".")[0]


def _line(spot: Spot) -> str:
    return f"{_room(spot.module)}:{spot.line}  {linecache.getline(spot.file, spot.line).strip()}"
