"""What replays and redrives have in common: a job's row, how it ended, what is shown meanwhile, and the exit code."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from worker.app.opening import Engine
from worker.errors import UsageError
from worker.ledger.desk import open_desk
from worker.ledger.jobs import Ended, Job, Runner, read_job
from worker.observe.logs import notice
from worker.settings import DatabaseSettings

STOPPED: Final = frozenset({"stopped", "cancelled"})
LOOK_AT_IT: Final = 2
UNFINISHED: Final = 3
_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Finish:
    """How a job came to its end, and why if that is not obvious."""

    state: Ended
    why: str | None = None


class Show(Protocol):
    """Who shows people, or machines, how a job gets on."""

    def begin(self, job: int, topic: str, total: int) -> None: ...
    def progress(self, done: int, counts: Mapping[str, int]) -> None: ...
    def warn(self, text: str) -> None: ...
    def nothing(self, why: str) -> None: ...
    def end(self, report: Mapping[str, Any]) -> None: ...


def count_outcomes(engine: Engine, before: Mapping[str, int]) -> Counter[str]:
    """Finished records by outcome, on top of what earlier runs of the job counted."""
    counts = Counter(before)
    for route in engine.routes:
        for outcomes in route.outcomes.values():
            counts.update({outcome.value: n for outcome, n in outcomes.items()})
    counts["dead_lettered"] += sum(engine.pipeline.counts.refused.values())
    return counts


def failures(counts: Mapping[str, int]) -> int:
    """How many records came to a bad end, or to none yet."""
    return sum(counts.get(name, 0) for name in ("dead_lettered", "misuse", "parked"))


def exit_code(state: str, report: Mapping[str, Any]) -> int:
    """0: all is done; 1: it failed; 2: it ended, and some records need a look; 3: it was stopped and can go on."""
    if state in STOPPED:
        return UNFINISHED
    if state == "failed":
        return 1
    outcomes = report["outcomes"]
    troubled = any(outcomes.get(name) for name in ("dead_lettered", "misuse", "parked", "refused", "malformed"))
    return LOOK_AT_IT if troubled else 0


async def find_job(database: DatabaseSettings, job_id: int) -> Job:
    """A job that can be gone on with, or at least exists."""
    async with open_desk(database) as desk:
        job = await read_job(desk.line, desk.queries, job_id)
    if job is None:
        raise UsageError(f"there is no job {job_id}\n  `oncebox jobs list` shows which there are")
    if job.state == "done":
        raise UsageError(f"job {job_id} is done\n  `oncebox jobs show {job_id}` shows what became of it")
    return job


async def take_up(engine: Engine, job_id: int) -> Runner:
    """Become the process that runs a job; waits until the session of one that died has lapsed."""
    ledger = engine.ledger
    deadline = asyncio.get_running_loop().time() + ledger.session.lease + _PATIENCE
    told = False
    while True:
        ledger.session.beat()
        async with ledger.line() as line:
            runner = await Runner.resume(line, ledger.queries, job_id, session=ledger.session.id)
        if runner is not None:
            return runner
        if asyncio.get_running_loop().time() > deadline:
            raise UsageError(f"job {job_id} is running\n  `oncebox jobs show {job_id}` says where")
        if not told:
            notice("job_waits", job=job_id, next="going on when the session of its last process is over")
            told = True
        await asyncio.sleep(0.2)
