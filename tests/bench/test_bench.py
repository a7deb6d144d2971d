"""The benchmark works, checks what it measures, and says when a target is missed."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.contenders import ONCEBOX, RAW, TUNED
from tests.bench.database import Database
from tests.bench.measure import Measure
from tests.bench.messages import mixed, waits
from tests.bench.report import Report
from tests.bench.report.runs import Runs
from tests.bench.report.targets import targets
from tests.bench.stage import TINY, Stage
from tests.bench.topics import open_topics
from tests.bench.track import Run, Track, Wrong
from tests.bench.workloads import WORKLOADS, rates
from worker.stack import Stack
from worker.stack.topics import client_settings

ABOUT = {
    "machine": "one",
    "python": "3",
    "packages": {},
    "services": {},
    "postgres": {},
    "settings": {},
    "overridden": [],
}


@pytest.fixture
def seen() -> list[Measure]:
    return []


@pytest.fixture
def stage(stack: Stack, kafka: str, database_url: str, redis_url: str, seen: list[Measure]) -> Iterator[Stage]:
    with ExitStack() as making:
        topics = making.enter_context(open_topics(stack, client_settings(kafka, os.environ), lambda _: None))
        track = Track(
            Database(database_url),
            topics,
            environment=stack.environment(),
            pids=stack.pids(),
            limit=60,
            seen=seen.append,
        )
        yield Stage(track, TINY, making)


def test_contenders_do_what_they_say_and_are_reported(
    stage: Stage, seen: list[Measure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "QUICKLY", (ONCEBOX, RAW))
    stage.size = replace(TINY, everyone=False)
    rates.play(stage, 0)
    assert {(one.workload, one.contender) for one in seen} == {
        (letter, name) for letter in "ab" for name in ("oncebox", "raw")
    }
    Report(seen, ABOUT, 1.0).write(tmp_path)
    again = Report.read(tmp_path / "report.json")
    assert [one.rate for one in again.measures] == [one.rate for one in seen]
    text = (tmp_path / "report.md").read_text()
    assert "rate of oncebox / raw" in text
    assert RAW.lacks in text


def test_a_contender_that_did_less_than_it_should_is_wrong(stage: Stage) -> None:
    topic = stage.track.topics.orders(50)
    with stage.track.database.schema_for(TUNED) as schema, pytest.raises(Wrong, match="50 keys completed, not 51"):
        stage.track.measure(Run(TUNED, "a", 0, topic, schema, completed=51))


def test_ratios_are_taken_inside_one_round_and_misses_are_told() -> None:
    slow_machine = [_measure("a", "oncebox", 0, 900), _measure("a", "tuned32", 0, 100)]
    fast_machine = [_measure("a", "oncebox", 1, 5000), _measure("a", "tuned32", 1, 1000)]
    (missed,) = [t for t in targets(Runs([*slow_machine, *fast_machine])) if "tuned32" in t.what]
    assert missed.found.values == (9.0, 5.0)
    assert not missed.reached
    assert missed.verdict == "**no**, 12 % away"


def test_memory_that_grows_in_the_last_half_is_told() -> None:
    memory = [(0.0, 50.0), (2.0, 90.0), (6.0, 100.0), (9.0, 110.0)]
    grown = _measure("g", "oncebox", 0, 100, seconds=10.0, memory=memory)
    found = {target.what: target for target in targets(Runs([grown]))}
    assert found["most / least memory of the last half"].found.median == pytest.approx(1.1)
    assert not found["most / least memory of the last half"].reached


def test_the_mixed_topic_has_exactly_its_share_of_duplicates() -> None:
    keys = [one.key for one in mixed("run", 1000, 0.3)]
    assert len(set(keys)) == 700


def test_the_floor_waits_exactly_as_long_as_the_handlers() -> None:
    assert list(waits(500, 20)) == list(waits(500, 20))
    places = [place for line, place, _ in waits(500, 20) if line == 3]
    assert places == list(range(len(places)))


def test_every_letter_has_one_workload() -> None:
    assert "".join(sorted(letter for each in WORKLOADS for letter in each.letters)) == "abcdefghijp"


def _measure(
    workload: str, contender: str, number: int, messages: int, *, seconds: float = 1.0, **detail: object
) -> Measure:
    return Measure(workload, "", contender, number, messages, seconds, 20.0, {}, 60.0, 0.5, detail)
