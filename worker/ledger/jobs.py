"""Jobs: long work that an operator starts, how far it has come, and how it is stopped or gone on with."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import orjson

from worker.ledger.audit import Act, write_audit
from worker.ledger.connect import Line
from worker.rules.windows import Span

Queries = Mapping[str, str]
Kind = Literal["replay", "file", "redrive"]
Ended = Literal["done", "stopped", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is stored."""

    id: int
    kind: Kind
    state: str
    topic: str
    plan: dict[str, Any]
    actor: str
    started_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    counts: dict[str, int]
    report: dict[str, Any] | None
    error: str | None
    host: str | None
    pid: int | None
    lives: bool
    cancelling: bool
    spans: tuple[Span, ...]

    @property
    def standing(self) -> str:
        """Its state as people see it: a running job without a living process was interrupted."""
        if self.state == "running" and not self.lives:
            return "interrupted"
        return "cancelling" if self.state == "running" and self.cancelling else self.state

    @property
    def total(self) -> int:
        return sum(span.end - span.start for span in self.spans)

    @property
    def passed(self) -> int:
        return sum(span.position - span.start for span in self.spans)


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a job is created with."""

    kind: Kind
    topic: str
    plan: Mapping[str, Any]
    actor: str
    spans: Sequence[Span] = ()
    act: Act | None = None  # what is written to the audit with it


class Runner:
    """The process that runs one job, as the only one that may write its progress."""

    def __init__(self, queries: Queries, job: int) -> None:
        self._queries = queries
        self.job = job
        self._token = uuid.uuid4()

    @classmethod
    async def create(cls, line: Line, queries: Queries, new: NewJob, *, session: int) -> "Runner":
        runner = cls(queries, 0)
        async with line.transaction() as tx:
            plan = orjson.dumps(new.plan).decode()
            runner.job = await tx.fetchval(
                queries["create_job"], new.kind, new.topic, plan, new.actor, session, runner._token
            )
            columns = [[s.partition for s in new.spans], [s.start for s in new.spans], [s.end for s in new.spans]]
            await tx.execute(queries["create_job_spans"], runner.job, *columns)
            if new.act is not None:
                await write_audit(tx, queries, new.act)
        return runner

    @classmethod
    async def resume(cls, line: Line, queries: Queries, job: int, *, session: int) -> "Runner | None":
        """Go on with a job; None while another process runs it, and when it is done."""
        runner = cls(queries, job)
        taken = await line.fetchval(queries["resume_job"], job, session, runner._token)
        return None if taken is None else runner

    async def progress(
        self, line: Line, positions: Mapping[int, int], counts: Mapping[str, int], *, session: int
    ) -> Literal["go on", "cancelled", "lost"]:
        """Store how far the job has come, and hear whether it should go on."""
        partitions = sorted(positions)
        cancelled = await line.fetchval(
            self._queries["keep_progress"],
            self.job,
            self._token,
            session,
            orjson.dumps(dict(counts)).decode(),
            partitions,
            [positions[partition] for partition in partitions],
        )
        return "lost" if cancelled is None else "cancelled" if cancelled else "go on"

    async def end(self, line: Line, state: Ended, report: Mapping[str, Any], *, error: str | None = None) -> None:
        text = orjson.dumps(dict(report), default=str).decode()
        await line.fetch(self._queries["end_job"], self.job, self._token, state, text, error)


async def list_jobs(line: Line, queries: Queries, most: int) -> list[Job]:
    """The newest jobs, newest first."""
    rows = await line.fetch(queries["list_jobs"], most)
    spans = await _spans(line, queries, [row["id"] for row in rows])
    return [_job(row, spans) for row in rows]


async def read_job(line: Line, queries: Queries, id_: int) -> Job | None:
    rows = await line.fetch(queries["read_job"], id_)
    return _job(rows[0], await _spans(line, queries, [id_])) if rows else None


async def cancel_job(line: Line, queries: Queries, id_: int, act: Act) -> str | None:
    """Ask a job to stop; its state now, or None when it was not running. Audited."""
    async with line.transaction() as tx:
        state: str | None = await tx.fetchval(queries["cancel_job"], id_)
        if state is not None:
            await write_audit(tx, queries, act)
        return state


async def _spans(line: Line, queries: Queries, ids: Sequence[int]) -> dict[int, list[Span]]:
    found: dict[int, list[Span]] = {}
    for job, partition, start, position, end in await line.fetch(queries["read_job_spans"], list(ids)):
        found.setdefault(job, []).append(Span(partition, start, end, position=position))
    return found


def _job(row: Any, spans: Mapping[int, Sequence[Span]]) -> Job:
    return Job(
        id=row["id"],
        kind=row["kind"],
        state=row["state"],
        topic=row["topic"],
        plan=orjson.loads(row["plan"]),
        actor=row["actor"],
        started_at=row["started_at"],
        updated_at=row["updated_at"],
        ended_at=row["ended_at"],
        counts=orjson.loads(row["counts"]),
        report=None if row["report"] is None else orjson.loads(row["report"]),
        error=row["error"],
        host=row["host"],
        pid=row["pid"],
        lives=row["lives"],
        cancelling=row["cancel_at"] is not None,
        spans=tuple(spans.get(row["id"], ())),
    )
