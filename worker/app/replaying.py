"""Replays: a window of a topic through the same claims as live traffic, as a job that can be stopped and resumed."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from worker.app.choosing import Plan, chosen_by, refuse_unread, with_concurrency
from worker.app.forgetting import may_be_forgotten, remember
from worker.app.jobbing import STOPPED, Finish, Show, count_outcomes, exit_code, failures, find_job, take_up
from worker.app.opening import Engine, open_engine
from worker.engine.backlog import Backlog, Limit
from worker.engine.classify import Classifier
from worker.engine.janitor import Janitor, claim_duties
from worker.engine.republishing import Republishing
from worker.engine.throttle import Throttle
from worker.engine.worker import Pace, Worker
from worker.errors import ServiceUnavailable, UsageError
from worker.kafka.reader import Reader, open_reader
from worker.ledger.audit import Act
from worker.ledger.clock import clock
from worker.ledger.jobs import NewJob, Runner
from worker.observe.logs import notice
from worker.rules.registry import Registry
from worker.rules.tally import Tally
from worker.rules.windows import Span, shown
from worker.settings import Settings

_KEEP_EVERY = 0.5
_LOOK_EVERY = 0.1
_UNDER_WAY = 100_000


@dataclass(slots=True)
class Replay:
    """One run of a replay: what it works with."""

    plan: Plan
    engine: Engine
    runner: Runner
    spans: Sequence[Span]
    show: Show
    letters: Tally
    before: Mapping[str, int] = field(default_factory=dict)  # what earlier runs of the job counted
    began: float = field(default_factory=time.monotonic)
    lost: bool = False  # another process has taken the job over

    def counts(self, backlog: Backlog) -> Counter[str]:
        """Finished records by outcome, earlier runs included."""
        counts = count_outcomes(self.engine, self.before)
        counts["left_out"] += backlog.left_out
        return +counts


async def replay(
    settings: Settings, registry: Registry, plan: Plan, *, actor: str, show: Show, stop: asyncio.Event
) -> int:
    """Start a replay and run it until it is over, or told to stop; the exit code."""
    refuse_unread(registry, plan.topic)
    async with open_reader(settings.kafka, plan.topic, notice) as reader:
        spans = await reader.spans(plan.window, group=settings.kafka.group)
        refuse_gaps(plan, spans, show)
        if not any(span.start < span.end for span in spans):
            show.nothing(explain_empty(plan, spans, settings.kafka.group))
            return 0
        act = None
        if plan.run_beyond_ttl:
            act = Act(actor, "run beyond ttl", plan.topic, plan.reason or "", detail=str(plan.window))
        new = NewJob("replay", plan.topic, plan.stored(), actor, spans, act)
        async with open_replaying(settings, registry, plan) as (engine, letters):
            async with engine.ledger.line() as line:
                runner = await Runner.create(line, engine.ledger.queries, new, session=engine.ledger.session.id)
            return await _run(Replay(plan, engine, runner, spans, show, letters), reader, stop)


async def resume_replay(
    settings: Settings, registry: Registry, job_id: int, plan: Plan, *, show: Show, stop: asyncio.Event
) -> int:
    """Go on with a replay that was stopped, or whose process died; the exit code."""
    refuse_unread(registry, plan.topic)
    async with (
        open_reader(settings.kafka, plan.topic, notice) as reader,
        open_replaying(settings, registry, plan) as opened,
    ):
        engine, letters = opened
        runner = await take_up(engine, job_id)
        # Read again: until the other process was over, it moved on.
        job = await find_job(settings.database, job_id)
        return await _run(Replay(plan, engine, runner, job.spans, show, letters, job.counts), reader, stop)


def refuse_gaps(plan: Plan, spans: Sequence[Span], show: Show) -> None:
    """What retention has removed can be in the window: whoever replays the rest has to say so."""
    gaps = [gap for span in spans if (gap := explain_gap(plan.topic, span)) is not None]
    for gap in gaps:
        show.warn(gap)
    if gaps and not plan.partial:
        raise UsageError("part of the window is gone\n  --partial replays what is left")


def explain_gap(topic: str, span: Span) -> str | None:
    if span.gone is None:
        return None
    first, past = span.gone
    left = f"the oldest record left is of {shown(span.oldest)}" if span.oldest is not None else "nothing is left"
    return f"{topic}/{span.partition}: retention has removed offsets {first} to {past - 1}; {left}"


def explain_empty(plan: Plan, spans: Sequence[Span], group: str) -> str:
    unread = [str(span.partition) for span in spans if span.unread]
    if unread:
        return (
            f"nothing to replay: group {group!r} has no place yet on partition {', '.join(unread)} of {plan.topic},"
            " so all of it is the group's own; --until now replays it nevertheless"
        )
    end = f" up to where group {group!r} is" if plan.window.open_ended else ""
    return f"nothing to replay: no record of {plan.topic} is in the window{end}"


@asynccontextmanager
async def open_replaying(settings: Settings, registry: Registry, plan: Plan) -> AsyncIterator[tuple[Engine, Tally]]:
    """An engine for a replay, and a tally of the dead letters it writes."""
    letters = Tally()
    async with open_engine(
        with_concurrency(settings, plan.concurrency),
        registry,
        notice,
        role="replay",
        publishing=lambda publisher: Republishing(publisher, results=plan.results, letters=letters),
    ) as engine:
        yield engine, letters


async def _run(this: Replay, reader: Reader, stop: asyncio.Event) -> int:
    engine, plan = this.engine, this.plan
    limits, tasks = engine.settings.engine, engine.tasks
    backlog = _backlog(this, reader)
    reader.begin(this.spans)
    await _remember(this, backlog)
    pace = Pace(
        2 * limits.in_flight,
        limits.in_flight_bytes,
        engine.settings.kafka.fetch_records,
        limits.drain.total_seconds(),
        commit_every=_KEEP_EVERY,
    )
    worker = Worker(engine.pipeline, pace, beat=engine.ledger.session.beat, notice=notice)
    worker.consumer = backlog
    this.show.begin(this.runner.job, plan.topic, sum(span.end - span.start for span in this.spans))
    tasks.spawn(worker.tick(), "tick")
    reading = tasks.spawn(worker.read(), "read")
    tasks.spawn(worker.commit(), "progress")
    tasks.spawn(_keep_remembering(this, backlog), "seen before")
    Janitor(claim_duties(engine.ledger, limits.settle_every.total_seconds()), notice).start(tasks)
    finish = Finish("failed", "interrupted")
    try:
        finish = await _until_over(this, backlog, worker, stop)
        if finish.state in STOPPED:
            notice("replay_stopping", job=this.runner.job, next=f"handlers have {pace.drain:g} s to end")
    except Exception as error:
        finish = Finish("failed", str(error))
        raise
    finally:
        await worker.stop()
        reading.cancel()
        await asyncio.wait([reading])
        await backlog.commit(closing=True)
        report = await _report(this, backlog, finish)
        async with engine.ledger.line() as line:
            await this.runner.end(line, finish.state, report, error=finish.why)
        this.show.end(report)
    return exit_code(finish.state, report)


def _backlog(this: Replay, reader: Reader) -> Backlog:
    plan, engine = this.plan, this.engine
    choose = chosen_by(plan, engine.intake)
    limit = None
    if plan.rate is not None:
        classifier = Classifier(
            engine.ledger.claims.look_up,
            lambda item: may_be_forgotten(lanes[item.record.partition], item),
            crash_cap=engine.settings.engine.crash_cap,
            memory=_UNDER_WAY,
        )
        limit = Limit(Throttle(plan.rate, clock), classifier, engine.intake)

    async def keep(positions: Mapping[int, int]) -> bool:
        async with engine.ledger.line() as line:
            answer = await this.runner.progress(line, positions, this.counts(backlog), session=engine.ledger.session.id)
        this.lost = answer == "lost"
        return answer == "go on"

    backlog = Backlog(reader, plan.topic, this.spans, keep, notice, choose=choose, limit=limit)
    lanes = {lane.partition: lane for lane in backlog.lanes}
    return backlog


async def _remember(this: Replay, backlog: Backlog) -> None:
    """Before the first record is read, and now and then: what was finished so long ago that it may be forgotten."""
    if not this.plan.run_beyond_ttl:
        await remember(this.engine.ledger.feeds, this.plan.topic, this.engine.routes, backlog.lanes)


async def _keep_remembering(this: Replay, backlog: Backlog) -> None:
    while True:
        await asyncio.sleep(this.engine.settings.engine.sample_every.total_seconds())
        try:
            await _remember(this, backlog)
        except ServiceUnavailable as error:
            notice("seen_before_delayed", error=str(error), next="trying again")


async def _until_over(this: Replay, backlog: Backlog, worker: Worker, stop: asyncio.Event) -> Finish:
    """Wait for the window's end, a signal, a cancel, too many failures, or a task that died: its error is raised."""
    reached = asyncio.ensure_future(worker.reach(backlog.ends))
    failed = this.engine.tasks.failed
    try:
        while not reached.done():
            if failed.done():
                failed.result()
            if stop.is_set():
                return Finish("stopped", "told to stop")
            if backlog.told_to_stop.is_set():
                if this.lost:
                    return Finish("stopped", "another process has taken the job over")
                return Finish("cancelled", "cancelled by an operator")
            counts = this.counts(backlog)
            this.show.progress(_passed(this, backlog), counts)
            if this.plan.max_failures is not None and failures(counts) > this.plan.max_failures:
                return Finish("stopped", f"{failures(counts)} records failed: more than {this.plan.max_failures}")
            if this.engine.pipeline.overdue > this.engine.settings.engine.overdue_limit:
                return Finish("failed", f"{this.engine.pipeline.overdue} handlers ignore their timeout")
            await asyncio.wait([reached], timeout=_LOOK_EVERY)
        reached.result()
    finally:
        reached.cancel()
    this.show.progress(_passed(this, backlog), this.counts(backlog))
    return Finish("done")


def _passed(this: Replay, backlog: Backlog) -> int:
    starts = {span.partition: span.start for span in this.spans}
    return sum(position - starts[partition] for partition, position in backlog.finished.items())


async def _report(this: Replay, backlog: Backlog, finish: Finish) -> dict[str, Any]:
    spans = this.spans
    columns = [[s.partition for s in spans], [s.start for s in spans], [s.end for s in spans]]
    async with this.engine.ledger.line() as line:
        rows = await line.fetch(this.engine.ledger.queries["parked_in_spans"], this.plan.topic, *columns)
    return {
        "job": this.runner.job,
        "topic": this.plan.topic,
        "state": finish.state,
        "why": finish.why,
        "total": sum(span.end - span.start for span in spans),
        "done": _passed(this, backlog),
        "outcomes": dict(this.counts(backlog)),
        "dead_letters": dict(this.letters.classes),
        "examples": this.letters.examples,
        "parked": {row["reason"]: row["n"] for row in rows},
        "seconds": round(time.monotonic() - this.began, 3),
        "unread": [span.partition for span in spans if span.unread],
        "gone": [explain_gap(this.plan.topic, span) for span in spans if span.gone],
    }
