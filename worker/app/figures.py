"""The figures of one worker, read from its parts when someone asks: plain numbers that the parts keep anyway."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from worker.app.opening import Engine
from worker.engine.routes import Route
from worker.kafka.consumer import Consumer
from worker.kafka.probing import KafkaProbe
from worker.ledger.clock import clock
from worker.ledger.survey import Surveyed
from worker.observe.collector import Sample
from worker.observe.histograms import Histograms
from worker.observe.table import BY_NAME
from worker.rules.claims import Outcome
from worker.rules.entries import Answer

_FOLD = 0.5
_DURATION: Final = "oncebox_process_duration_seconds"
_DELAY: Final = "oncebox_record_delay_seconds"
# What an answer is called for operators; a key that is due is claimed again, and counted then.
_RESULTS: Final = {
    Answer.REPLAY: "replay",
    Answer.MISUSE: "misuse",
    Answer.WAIT: "in_progress",
    Answer.DOUBT: "unknown",
    Answer.LATER: "delayed",
    Answer.EXHAUSTED: "exhausted",
    Answer.CRASH_LOOP: "exhausted",
}


class EngineFigures:
    """What an engine has done and is doing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._durations = Histograms(_DURATION, BY_NAME[_DURATION].buckets)
        self._delays = Histograms(_DELAY, BY_NAME[_DELAY].buckets)
        engine.pipeline.counts.delays = []
        for route in engine.routes:
            route.durations = []
            self._durations.of(route.name)
        for topic in engine.topics:
            self._delays.of(topic)

    async def fold(self) -> None:
        """Count what has gathered, for ever, whether someone asks or not."""
        while True:
            await asyncio.sleep(_FOLD)
            self._fold()

    def samples(self) -> Iterator[Sample]:
        self._fold()
        yield from self._durations.samples()
        yield from self._delays.samples()
        running = Counter(item.route for item in self._engine.pipeline.running())
        for route in self._engine.routes:
            yield from _of_route(route)
            yield "oncebox_handlers_running", (route.name,), running[route]
        yield from self._of_pipeline()
        redis = self._engine.filter
        if redis is not None:
            yield "oncebox_filter_lookups_total", (), redis.asked
            yield "oncebox_filter_hits_total", (), redis.answered

    def _of_pipeline(self) -> Iterator[Sample]:
        pipeline = self._engine.pipeline
        for topic, count in pipeline.counts.refused.items():
            yield "oncebox_records_total", (topic, "none", Outcome.DEAD_LETTERED.value), count
        created, retried = pipeline.claims_made
        results = Counter({"created": created, "retried": retried} | dict.fromkeys(_RESULTS.values(), 0))
        for answer, count in pipeline.answers.items():
            if answer in _RESULTS:
                results[_RESULTS[answer]] += count
        for result, count in results.items():
            yield "oncebox_claims_total", (result,), count
        yield "oncebox_claims_open", (), pipeline.open_claims
        yield "oncebox_records_waiting", (), pipeline.waiting
        yield "oncebox_handlers_overdue", (), pipeline.overdue

    def _fold(self) -> None:
        for route in self._engine.routes:
            if route.durations:
                values, route.durations = route.durations, []
                # What never got its thread or connection has no beginning, and no duration.
                self._durations.of(route.name).add([value for value in values if value >= 0.0])
        pipeline = self._engine.pipeline
        if pipeline.counts.delays:
            delays, pipeline.counts.delays = pipeline.counts.delays, []
            for topic, seconds in delays:
                self._delays.of(topic).observe(seconds)


def _of_route(route: Route) -> Iterator[Sample]:
    name = route.name
    for topic, outcomes in route.outcomes.items():
        for outcome in Outcome:
            yield "oncebox_records_total", (topic, name, outcome.value), outcomes.get(outcome, 0)
        yield "oncebox_duplicates_absorbed_total", (topic, name), outcomes.get(Outcome.REPLAYED, 0)
    yield "oncebox_circuit_open", (name,), int(route.circuit.open)
    yield "oncebox_records_held", (name,), len(route.held)


class GroupFigures:
    """What the member of a group reads, and how far behind it is."""

    def __init__(self, consumer: Consumer, probe: KafkaProbe, topics: Sequence[str]) -> None:
        self._consumer = consumer
        self._probe = probe
        self._topics = topics

    def samples(self) -> Iterator[Sample]:
        lanes = [lane for lane in self._consumer.lanes if not lane.revoked]
        for topic in self._topics:
            mine = [lane for lane in lanes if lane.topic == topic]
            yield "oncebox_partitions_assigned", (topic,), len(mine)
            yield "oncebox_partitions_held", (topic,), sum(lane.held is not None for lane in mine)
            yield "oncebox_records_in_flight", (topic,), sum(lane.unfinished for lane in mine)
        for lane in lanes:
            place = (lane.topic, str(lane.partition))
            yield "oncebox_consumer_lag_records", place, self._probe.lag(lane)
            yield "oncebox_consumer_lag_seconds", place, self._probe.lag_seconds(lane)


class DatabaseFigures:
    """What the last look at the whole database found."""

    def __init__(self, operations: Sequence[str]) -> None:
        self._operations = operations
        self._found: Surveyed | None = None
        self._at = 0.0

    def keep(self, found: Surveyed) -> None:
        self._found = found
        self._at = clock()

    def samples(self) -> Iterator[Sample]:
        found = self._found
        if found is None:
            return
        operations = {*self._operations, *found.expired, *found.unknown, *found.parked_overdue}
        for name in sorted(operations):
            yield "oncebox_unknown_entries", (name,), found.unknown.get(name, 0)
            yield "oncebox_unknown_oldest_age_seconds", (name,), found.oldest_unknown.get(name, 0.0)
            yield "oncebox_reconcile_backlog", (name,), found.due_probes.get(name, 0)
            yield "oncebox_parked_overdue_seconds", (name,), found.parked_overdue.get(name, 0.0)
            yield "oncebox_prune_backlog_seconds", (name,), found.expired.get(name, 0.0)
            yield from self._of_parked(found, name)
        for role, count in found.sessions.items():
            yield "oncebox_sessions_alive", (role,), count
        yield "oncebox_sessions_lapsed", (), found.lapsed
        yield "oncebox_ended_session_claims", (), found.unsettled
        for (group, topic, partition), seconds in found.behind.items():
            yield "oncebox_feed_behind_seconds", (group, topic, str(partition)), seconds
        yield "oncebox_database_figures_age_seconds", (), clock() - self._at

    @staticmethod
    def _of_parked(found: Surveyed, name: str) -> Iterator[Sample]:
        reasons = {"unknown", *(reason for operation, reason in found.parked if operation == name)}
        for reason in sorted(reasons):
            yield "oncebox_parked_records", (name, reason), found.parked.get((name, reason), 0)
