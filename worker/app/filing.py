"""Replays of files: records that never were in the topic, or no longer are, each parked before it is claimed."""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, BinaryIO

from worker.app.carrying import AT_ONCE, Carrier
from worker.app.choosing import Plan, wanted
from worker.app.forecast import open_glass
from worker.app.jobbing import Finish, Show, exit_code, find_job, take_up
from worker.app.replaying import open_replaying
from worker.engine.classify import Classifier, LookUp, Read, read_records
from worker.engine.intake import Intake
from worker.engine.items import Item
from worker.engine.routes import Route
from worker.errors import UsageError
from worker.ledger.audit import Act
from worker.ledger.jobs import NewJob, Runner
from worker.ledger.looking import Looking
from worker.observe.logs import notice
from worker.rules.entries import Row
from worker.rules.exports import LONGEST, Exported, Malformed, read_line
from worker.rules.paths import Path
from worker.rules.registry import Registry
from worker.rules.tally import RUN, Tally
from worker.rules.windows import Span
from worker.rules.writes import Parked, Parking
from worker.settings import Settings

BEYOND = "beyond_ttl"


@dataclass(frozen=True, slots=True)
class Lines:
    """A file as it was when it was looked at: its name is its content's."""

    path: FilePath
    count: int
    topic: str
    time: Path | None

    @classmethod
    def of(cls, path: FilePath, time_field: str | None) -> "Lines":
        """Look at the whole file once; raises UsageError when it cannot be read."""
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                file.seek(0)
                count = sum(1 for _ in _lines(file))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
        return cls(path, count, f"file:{digest[:32]}", None if time_field is None else Path.of(time_field))

    def read(self, behind: int) -> Iterator[tuple[int, Exported | Malformed]]:
        """The lines after that one, by number; empty ones are passed over."""
        with self.path.open("rb") as file:
            for number, line in enumerate(_lines(file), 1):
                text = line.strip()
                if number <= behind or not text:
                    continue
                try:
                    yield number, read_line(text, topic=self.topic, number=number, time=self.time)
                except Malformed as problem:
                    yield number, problem


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines, each of bounded length: of one that is too long, only so much that it shows."""
    while line := file.readline(LONGEST + 2):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST)
        yield line


@dataclass(slots=True)
class Horizon:
    """Whether a record without a position may have been done and forgotten: by time alone.

    Asked after the look-up found no entry: an entry that was pruned before that has moved the horizon before.
    """

    looking: Looking
    operation: int
    off: bool
    latest: datetime | None = None
    times: dict[int, int | None] = field(default_factory=dict)

    def around(self, look_up: LookUp) -> LookUp:
        async def look(ids: Sequence[bytes]) -> dict[bytes, Row]:
            rows = await look_up(ids)
            self.latest = await self.looking.horizon(self.operation)
            return rows

        return look

    def passed(self, item: Item) -> bool:
        if self.off or self.latest is None:
            return False
        at = self.times.get(item.record.offset)
        return at is None or at / 1000 + item.plan.ttl <= self.latest.timestamp()


async def replay_file(
    settings: Settings, registry: Registry, plan: Plan, lines: Lines, *, actor: str, show: Show, stop: asyncio.Event
) -> int:
    """Replay the lines of a file; the exit code."""
    if not lines.count:
        show.nothing(f"nothing to replay: {lines.path} is empty")
        return 0
    stored = {**plan.stored(), "file": str(lines.path.resolve()), "time_field": _named(lines.time)}
    act = None
    if plan.run_beyond_ttl:
        act = Act(actor, "run beyond ttl", lines.topic, plan.reason or "", detail=str(lines.path))
    new = NewJob("file", lines.topic, stored, actor, [Span(0, 0, lines.count)], act)
    async with open_replaying(settings, registry, plan) as (engine, letters):
        async with engine.ledger.line() as line:
            runner = await Runner.create(line, engine.ledger.queries, new, session=engine.ledger.session.id)
        carrier = Carrier(engine, runner, show, letters, plan.rate, plan.max_failures)
        return await _run(carrier, plan, lines, stop)


async def resume_file(
    settings: Settings, registry: Registry, job_id: int, plan: Plan, *, show: Show, stop: asyncio.Event
) -> int:
    """Go on with a file's replay: what is parked of it first, then the lines that nobody has read."""
    job = await find_job(settings.database, job_id)
    lines = Lines.of(FilePath(job.plan["file"]), job.plan.get("time_field"))
    if lines.topic != job.topic:
        raise UsageError(f"{lines.path} is not the file that job {job_id} began with\n  start a new replay with it")
    async with open_replaying(settings, registry, plan) as (engine, letters):
        runner = await take_up(engine, job_id)
        job = await find_job(settings.database, job_id)
        carrier = Carrier(engine, runner, show, letters, plan.rate, plan.max_failures, job.counts)
        carrier.position = job.passed
        return await _run(carrier, plan, lines, stop)


async def forecast_file(settings: Settings, registry: Registry, plan: Plan, lines: Lines) -> dict[str, Any]:
    """What a replay of a file would do."""
    async with open_glass(settings, registry) as glass:
        route = _route(glass.routes, plan)
        horizon = Horizon(glass.looking, route.plan.operation, plan.run_beyond_ttl)
        classifier = Classifier(
            horizon.around(glass.looking.look_at), horizon.passed, crash_cap=settings.engine.crash_cap
        )
        tally, left_out = Tally(), 0
        for batch in _batches(lines.read(0)):
            for number, one in batch:
                if isinstance(one, Malformed):
                    tally.add("malformed", None, None, f"line {number}")
            chosen = _chosen(batch, glass.intake, route, plan, horizon)
            left_out += sum(isinstance(one, Exported) for _, one in batch) - len(chosen)
            for read, class_ in zip(chosen, await classifier.classify(chosen), strict=True):
                tally.add(class_, route.name, read.tenant, f"line {read.item.record.offset}")
    estimate = None if plan.rate is None else round(tally.classes[RUN] / plan.rate, 1)
    about = {"left_out": left_out, "rate": plan.rate, "estimate_seconds": estimate}
    return {"dry_run": True, "topic": lines.topic, **tally.as_json(), **about}


async def _run(carrier: Carrier, plan: Plan, lines: Lines, stop: asyncio.Event) -> int:
    carrier.show.begin(carrier.runner.job, str(lines.path), lines.count)
    finish = Finish("failed", "interrupted")
    try:
        finish = await carrier.run(lambda: _feed(carrier, plan, lines), stop)
    except Exception as error:
        finish = Finish("failed", str(error))
        raise
    finally:
        report = carrier.report(finish, lines.topic, lines.count)
        async with carrier.engine.ledger.line() as line:
            await carrier.runner.end(line, finish.state, report, error=finish.why)
        carrier.show.end(report)
    return exit_code(finish.state, report)


async def _feed(carrier: Carrier, plan: Plan, lines: Lines) -> None:
    engine = carrier.engine
    await _bring_back(carrier, lines)
    route = _route(engine.routes, plan)
    async with engine.ledger.line() as line:
        horizon = Horizon(Looking(line, engine.ledger.queries), route.plan.operation, plan.run_beyond_ttl)
        classifier = Classifier(
            horizon.around(engine.ledger.claims.look_up),
            horizon.passed,
            crash_cap=engine.settings.engine.crash_cap,
            memory=10_000,
        )
        for batch in _batches(lines.read(carrier.position)):
            await carrier.room()
            for number, one in batch:
                if isinstance(one, Malformed):
                    carrier.extra["malformed"] += 1
                    carrier.refused.add("malformed", None, None, f"line {number}")
                    notice("line_malformed", file=str(lines.path), line=number, why=str(one), next="skipped")
            chosen = _chosen(batch, engine.intake, route, plan, horizon)
            carrier.extra["left_out"] += sum(isinstance(one, Exported) for _, one in batch) - len(chosen)
            await _carry(carrier, route, chosen, await classifier.classify(chosen))
            carrier.position = batch[-1][0]
    carrier.position = lines.count


async def _carry(carrier: Carrier, route: Route, chosen: Sequence[Read], classes: Sequence[str]) -> None:
    """Park what is not refused, then bring it; what would run has to wait for its turn before it is parked."""
    parkings: list[Parking] = []

    async def bring() -> None:
        if parkings:
            await carrier.engine.ledger.parking.park(parkings)
            carrier.bring([Parked(p.place, p.operation, p.reason, p.record) for p in parkings])
            parkings.clear()

    for read, class_ in zip(chosen, classes, strict=True):
        if class_ == BEYOND:
            carrier.extra["refused"] += 1
            carrier.refused.add(BEYOND, route.name, read.tenant, f"line {read.item.record.offset}")
            continue
        if class_ == RUN and carrier.rate is not None:
            # What is parked already must not wait here until a worker takes it, whatever the rate.
            await bring()
            await carrier.turn()
        parkings.append(Parking(read.item.record, "file", None, route.plan.operation, carrier.due))
    await bring()


async def _bring_back(carrier: Carrier, lines: Lines) -> None:
    """What an earlier run has parked and not finished: workers would take it, but perhaps there are none."""
    behind = 0
    while found := await carrier.engine.ledger.parking.under(lines.topic, behind, AT_ONCE):
        await carrier.room()
        carrier.bring(found)
        behind = found[-1].record.offset


def _route(routes: Sequence[Route], plan: Plan) -> Route:
    return next(route for route in routes if route.name == plan.handler)


def _chosen(
    batch: Sequence[tuple[int, Exported | Malformed]], intake: Intake, route: Route, plan: Plan, horizon: Horizon
) -> list[Read]:
    exported = [one for _, one in batch if isinstance(one, Exported)]
    horizon.times = {one.record.offset: one.at for one in exported}
    reads = read_records(intake, [one.record for one in exported], route)
    return [read for read in reads if wanted(plan, read) and plan.window.admits(read.item.record)]


def _batches(
    lines: Iterator[tuple[int, Exported | Malformed]],
) -> Iterator[list[tuple[int, Exported | Malformed]]]:
    while batch := list(islice(lines, AT_ONCE)):
        yield batch


def _named(path: Path | None) -> str | None:
    return None if path is None else str(path)
