"""What is measured, one file per workload."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.stage import Size, Stage
from tests.bench.workloads import (
    backlog,
    latency,
    mixed,
    processes,
    profiled,
    pruning,
    rates,
    rows,
    transactional,
    waits,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One or two letters of the report, and what plays them once."""

    letters: str
    titles: dict[str, str]
    play: Callable[[Stage, int], None]
    rounds: Callable[[Size], int] = lambda size: size.rounds


WORKLOADS = (
    Workload(
        "ab",
        {"a": "unique keys, no-op external handler", "b": "every message a duplicate of a completed key"},
        rates.play,
    ),
    Workload("c", {"c": "30 % duplicates, mixed"}, mixed.play, lambda size: min(size.rounds, 3)),
    Workload(
        "d",
        {"d": "handlers that wait 0-5 ms, one partition, by number of Kafka keys"},
        waits.play,
        lambda size: (size.rounds + 1) // 2,
    ),
    Workload("e", {"e": "transactional handler with one INSERT"}, transactional.play),
    Workload(
        "f",
        {"f": "50 messages per second: latency from produce to completed"},
        latency.play,
        lambda size: (size.rounds + 1) // 2,
    ),
    Workload("g", {"g": "a drained backlog: memory over time"}, backlog.play, lambda size: 1),
    Workload("h", {"h": "the same as (a), by rows already in the table"}, rows.play, lambda size: min(size.rounds, 3)),
    Workload("i", {"i": "one and two worker processes"}, processes.play, lambda size: min(size.rounds, 3)),
    Workload("j", {"j": "2,000 messages per second while expired entries are pruned"}, pruning.play, lambda size: 1),
    Workload("p", {"p": "a profile of the worker"}, profiled.play, lambda size: 1),
)
TITLES = {letter: title for workload in WORKLOADS for letter, title in workload.titles.items()}
