"""Going on with a job, whatever its kind."""

import asyncio
from dataclasses import replace
from typing import Any

from worker.app.choosing import Plan
from worker.app.filing import resume_file
from worker.app.jobbing import Show, find_job
from worker.app.replaying import resume_replay
from worker.errors import UsageError
from worker.rules.registry import Registry
from worker.settings import Settings


async def resume(
    settings: Settings, registry: Registry, job_id: int, *, show: Show, stop: asyncio.Event, **changes: Any
) -> int:
    """Go on with a replay that was stopped, or whose process died, with the options it had, save those that change."""
    job = await find_job(settings.database, job_id)
    plan = replace(Plan.restored(job.topic, job.plan), **{n: v for n, v in changes.items() if v is not None})
    match job.kind:
        case "replay":
            return await resume_replay(settings, registry, job_id, plan, show=show, stop=stop)
        case "file":
            return await resume_file(settings, registry, job_id, plan, show=show, stop=stop)
        case "redrive":
            raise UsageError(
                f"job {job_id} is a redrive: what it has redriven is parked, and runs\n  redrive again for the rest"
            )
