"""`python -m tests.bench [--quick]`: the contenders in turn, round after round, within a stated time."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import machine, report
from tests.bench.contenders import CONTENDERS, OURS, Contender, Measure
from tests.bench.database import Database
from tests.bench.race import Track, Wrong
from tests.bench.screen import Screen
from tests.bench.topics import filled
from worker.errors import OnceboxError
from worker.settings import load_settings
from worker.stack import KafkaOptions, Stack, start
from worker.stack.topics import client_settings


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured; no round begins that would end after `seconds`."""

    messages: int
    slow_messages: int
    rounds: int
    seconds: float
    run_limit: int


QUICK = Size(messages=40_000, slow_messages=8_000, rounds=3, seconds=180, run_limit=60)
FULL = Size(messages=120_000, slow_messages=20_000, rounds=5, seconds=450, run_limit=120)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two to three minutes instead of about eight")
    parser.add_argument("--rounds", type=int, help="other than the usual number of rounds")
    parser.add_argument("--only", metavar="NAMES", help=f"besides {OURS}: of {', '.join(c.name for c in CONTENDERS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run there as well")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    contenders = _chosen(given.only)
    size = QUICK if given.quick else FULL
    try:
        with Screen() as screen:
            measures, about = compete(contenders, size, given.rounds or size.rounds, screen)
    except (OnceboxError, Wrong) as error:
        print(f"bench: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    except KeyboardInterrupt:
        return 130
    print(report.as_markdown(measures, about))
    if given.json is not None:
        given.json.write_text(json.dumps(report.as_json(measures, about), indent=1) + "\n")
    return 0


def compete(
    contenders: Sequence[Contender], size: Size, rounds: int, screen: Screen
) -> tuple[list[Measure], dict[str, object]]:
    """Every measure of every round, and what it was measured on."""
    measures: list[Measure] = []
    began = time.monotonic()
    with start(("kafka", "postgres"), say=screen.say, kafka_options=KafkaOptions(real=True)) as stack:
        assert stack.postgres is not None
        database = Database(stack.postgres.url)
        screen.now("filling topics")
        with filled(stack, _client(stack), {size.messages, size.slow_messages}) as topics:
            track = Track(
                database,
                topics,
                stack.environment(),
                stack.pids(),
                size.messages,
                size.slow_messages,
                size.run_limit,
            )
            screen.plan(rounds * sum(len(each.workloads) for each in contenders))
            for number in range(rounds):
                round_began = time.monotonic()
                for contender in _turned(contenders, number):
                    screen.now(f"round {number + 1} of {rounds}: {contender.name}")
                    for measure in track.measure(contender, number):
                        measures.append(measure)
                        screen.done(_told(measure))
                if 2 * time.monotonic() - round_began - began > size.seconds and number + 1 < rounds:
                    screen.say(f"stopping after {number + 1} rounds: the next would not end in {size.seconds:g} s")
                    break
            settings = load_settings(environ={**os.environ, **stack.environment()})
            services = {service.name: service.how for service in stack.services}
            about = machine.describe(settings, services=services, postgres=database.settings())
    return measures, about


def _client(stack: Stack) -> dict[str, str]:
    assert stack.kafka is not None
    return client_settings(stack.kafka.url, os.environ if stack.kafka.how == "environment" else {})


def _chosen(names: str | None) -> list[Contender]:
    wanted = None if names is None else {OURS, *(name.strip() for name in names.split(","))}
    return [each for each in CONTENDERS if wanted is None or each.name in wanted]


def _turned(contenders: Sequence[Contender], by: int) -> list[Contender]:
    """Another one first in each round: who follows whom must not decide."""
    by %= len(contenders)
    return [*contenders[by:], *contenders[:by]]


def _told(one: Measure) -> str:
    return (
        f"round {one.round + 1}  {one.contender:16} {one.workload:10} {one.rate:8,.0f} msg/s"
        f"  worker {one.worker_us:6.1f} us  Postgres {one.postgres_us or 0:6.1f} us  load {one.load:.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
