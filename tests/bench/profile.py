"""Where the worker's CPU goes, per message: `python -m tests.bench.profile [--duplicates] [--key header]`."""

import argparse
import linecache
import os
import sys
from collections import Counter
from collections.abc import Callable

from tests.bench.contenders import CONTENDERS
from tests.bench.database import Database
from tests.bench.job import Job
from tests.bench.ours import Placed, Reading
from tests.bench.sampler import Sampler, Spot
from tests.bench.stopwatch import Stopwatch
from tests.bench.topics import filled
from worker.app import run
from worker.settings import load_settings
from worker.stack import KafkaOptions, start
from worker.stack.topics import client_settings

_LIMIT_SECONDS = 300


class SampledStopwatch(Stopwatch):
    """Samples between the assignment and the end of the run."""

    def __init__(self, limit: int, sampler: Sampler) -> None:
        super().__init__(limit)
        self._sampler = sampler

    def start(self) -> None:
        if not self.running:
            super().start()
            self._sampler.start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.add_argument("--messages", type=int, default=150_000)
    parser.add_argument("--key", choices=("field", "header"), default="field")
    parser.add_argument("--duplicates", action="store_true", help="look at a second pass over the same keys")
    parser.add_argument("--lines", type=int, default=40, help="how many of the most expensive lines to show")
    given = parser.parse_args()
    with start(("kafka", "postgres"), say=_say, kafka_options=KafkaOptions(real=True)) as stack:
        assert stack.kafka is not None
        assert stack.postgres is not None
        database = Database(stack.postgres.url)
        settings = client_settings(stack.kafka.url, {})
        with filled(stack, settings, {given.messages}) as topics, database.schema_for(CONTENDERS[0]) as schema:
            os.environ.update(stack.environment())
            passes = ("first", "second") if given.duplicates else ("first",)
            for group in passes:
                job = Job(topics.names[given.messages], given.messages, f"profile-{group}", schema, _LIMIT_SECONDS)
                sampler = sample(job, given.key)
    show(sampler, given.messages, given.lines)


def sample(job: Job, source: str) -> Sampler:
    """Run the worker here, to the end of the topic."""
    os.environ.update(job.environment())
    sampler = Sampler()
    restore = Reading(SampledStopwatch(job.limit, sampler)).restore
    try:
        run(load_settings(), Placed(job.topic, source).registry, until_idle=True)
    finally:
        sampler.stop()
        restore()
    return sampler


def show(sampler: Sampler, messages: int, lines: int) -> None:
    micros = sampler.cpu_seconds / messages / sampler.samples * 1e6
    print(f"{sampler.cpu_seconds / messages * 1e6:.1f} us CPU per message, {sampler.samples} samples\n")
    _table("by module", sampler.spots, micros, key=lambda spot: _room(spot.module), most=40)
    _table("by function", sampler.spots, micros, key=lambda spot: f"{_room(spot.module)}  {spot.function}", most=lines)
    _table("by line", sampler.spots, micros, key=_line, most=lines)


def _table(title: str, spots: Counter[Spot], micros: float, *, key: Callable[[Spot], str], most: int) -> None:
    sums: Counter[str] = Counter()
    for spot, count in spots.items():
        sums[key(spot)] += count
    print(f"us/msg  {title}")
    for name, count in sums.most_common(most):
        print(f"{count * micros:6.2f}  {name}")
    print()


def _room(module: str) -> str:
    """Our modules by name, everyone else's by package."""
    return module if module.startswith(("worker.", "tests.")) else module.partition(".")[0]


def _line(spot: Spot) -> str:
    return f"{_room(spot.module)}:{spot.line}  {linecache.getline(spot.file, spot.line).strip()}"


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
