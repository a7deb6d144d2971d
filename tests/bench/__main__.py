"""`python -m tests.bench [--quick]`: every workload, contenders in turn, round after round, within a stated time."""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench import machine
from tests.bench.contenders import ALL
from tests.bench.database import Database
from tests.bench.measure import Measure
from tests.bench.report import Report
from tests.bench.screen import Screen
from tests.bench.stage import FULL, QUICK, TINY, Size, Stage
from tests.bench.topics import open_topics
from tests.bench.track import Track, Wrong
from tests.bench.workloads import WORKLOADS, Workload
from worker.errors import OnceboxError
from worker.settings import load_settings
from worker.stack import KafkaOptions, Stack, start
from worker.stack.topics import client_settings

SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}
# What an operator gives a database of this size; the local stack's own settings are meant for a laptop.
POSTGRES = {"shared_buffers": "1GB", "max_wal_size": "4GB"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_const", dest="size", const="quick", help="the short form: minutes")
    parser.add_argument("--tiny", action="store_const", dest="size", const="tiny", help="only to see that it works")
    parser.add_argument("--rounds", type=int, help="at most so many rounds of each workload")
    parser.add_argument("--only", metavar="LETTERS", help="workloads such as a,d,f; (a) and (b) run together")
    parser.add_argument("--out", type=Path, default=Path("bench-report"), metavar="DIR", help="where the report goes")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Screen() as screen:
            report = compete(_chosen(given.only), SIZES[given.size or "full"], given.rounds, screen)
    except (OnceboxError, Wrong) as error:
        print(f"bench: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    except KeyboardInterrupt:
        return 130
    report.write(given.out)
    print(report.markdown())
    print(f"\nreport, plots and every run: {given.out}", file=sys.stderr)
    return 0


def compete(workloads: Sequence[Workload], size: Size, rounds: int | None, screen: Screen) -> Report:
    """Every measure of every round, and what it was measured on."""
    measures: list[Measure] = []

    def seen(measure: Measure) -> None:
        measures.append(measure)
        screen.say(measure.told())

    began = time.monotonic()
    with contextlib.ExitStack() as making:
        stack = making.enter_context(
            start(say=screen.say, kafka_options=KafkaOptions(real=True), postgres_settings=POSTGRES)
        )
        assert stack.postgres is not None
        database = Database(stack.postgres.url)
        topics = making.enter_context(open_topics(stack, _client(stack), screen.now))
        track = Track(
            database,
            topics,
            environment=stack.environment(),
            pids=stack.pids(),
            limit=size.run_limit,
            seen=seen,
        )
        stage = Stage(track, size, making)
        for missing in (each for each in ALL if not each.here):
            screen.say(f"without {missing.name}: {missing.needs} is not installed (`make bench` does that)")
        turns = [(number, each) for number in range(size.rounds) for each in workloads if number < each.rounds(size)]
        turns = [turn for turn in turns if rounds is None or turn[0] < rounds]
        screen.plan(len(turns))
        longest = 0.0
        for number, workload in turns:
            if number and time.monotonic() + longest - began > size.seconds:
                screen.say(f"stopping in round {number + 1}: the rest would not end within {size.seconds:g} s")
                break
            turn_began = time.monotonic()
            screen.now(f"round {number + 1}: {', '.join(workload.titles.values())}")
            workload.play(stage, number)
            screen.done()
            longest = max(longest, time.monotonic() - turn_began) if number == 0 else longest
        settings = load_settings(environ={**os.environ, **stack.environment()})
        services = {service.name: service.how for service in stack.services}
        about = machine.describe(settings, services=services, postgres=database.settings())
    return Report(measures, about, seconds=time.monotonic() - began)


def _client(stack: Stack) -> dict[str, str]:
    assert stack.kafka is not None
    return client_settings(stack.kafka.url, os.environ if stack.kafka.how == "environment" else {})


def _chosen(letters: str | None) -> list[Workload]:
    wanted = None if letters is None else {letter.strip() for letter in letters.split(",")}
    return [each for each in WORKLOADS if wanted is None or wanted & set(each.letters)]


if __name__ == "__main__":
    sys.exit(main())
