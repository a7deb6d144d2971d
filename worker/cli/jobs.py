"""`oncebox jobs`: replays and redrives, how far they are, and stopping one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.acting import AsJson, Reason, actor, given_reason, print_fields, print_json, print_table
from worker.cli.options import Config
from worker.errors import UsageError

if TYPE_CHECKING:
    from worker.ledger.jobs import Job

JobId = Annotated[int, typer.Argument(metavar="ID", help="The job's number.")]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Replays and redrives: list, show, cancel.")


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most of them, newest first.")] = 50,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """The newest jobs."""
    import asyncio

    from worker.ledger.desk import open_desk
    from worker.ledger.jobs import list_jobs
    from worker.settings import load_settings

    settings = load_settings(config)

    async def read() -> "list[Job]":
        async with open_desk(settings.database) as desk:
            return await list_jobs(desk.line, desk.queries, limit)

    jobs = asyncio.run(read())
    if as_json:
        print_json([_plain(job) for job in jobs])
        return
    rows = [(j.id, j.kind, j.topic, j.standing, f"{j.passed}/{j.total}", j.started_at, j.actor) for j in jobs]
    print_table(("id", "kind", "topic", "state", "done", "started", "by"), rows)


@app.command("show")
def show(job: JobId, as_json: AsJson = False, config: Config = None) -> None:
    """One job: what was asked for, how far it is, what became of it."""
    found = _read(job, config)
    if as_json:
        print_json(_plain(found))
        return
    plain = _plain(found)
    report = plain.pop("report") or {}
    spans = plain.pop("spans")
    shown = {name: _joined(value) if isinstance(value, dict) else value for name, value in plain.items()}
    print_fields({name: value for name, value in shown.items() if value not in ("", [])})
    if spans:
        print_table(
            ("partition", "from", "done to", "to"),
            [(s["partition"], s["start"], s["position"], s["end"]) for s in spans],
        )
    for reason, places in sorted((report.get("examples") or {}).items()):
        print(f"{reason}: first at {', '.join(places)}")


@app.command("cancel")
def cancel(job: JobId, reason: Reason, config: Config = None) -> None:
    """Stop a running job within seconds; handlers that run may end, and the job can be gone on with."""
    import asyncio

    from worker.ledger.audit import Act
    from worker.ledger.desk import open_desk
    from worker.ledger.jobs import cancel_job
    from worker.settings import load_settings

    why = given_reason(reason)
    found = _read(job, config)
    settings = load_settings(config)

    async def ask() -> str | None:
        act = Act(actor(), "cancel job", f"job {job}", why, old=found.standing, new="cancelled")
        async with open_desk(settings.database) as desk:
            return await cancel_job(desk.line, desk.queries, job, act)

    state = asyncio.run(ask())
    if state is None:
        raise UsageError(f"job {job} is not running: it is {found.state}")
    print(f"job {job} {'was told to stop' if state == 'running' else 'is cancelled: its process was gone'}")


def _read(job: int, config: Config) -> "Job":
    import asyncio

    from worker.ledger.desk import open_desk
    from worker.ledger.jobs import read_job
    from worker.settings import load_settings

    settings = load_settings(config)

    async def read() -> "Job | None":
        async with open_desk(settings.database) as desk:
            return await read_job(desk.line, desk.queries, job)

    found = asyncio.run(read())
    if found is None:
        raise UsageError(f"there is no job {job}\n  `oncebox jobs list` shows which there are")
    return found


def _plain(job: "Job") -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "state": job.standing,
        "topic": job.topic,
        "done": job.passed,
        "total": job.total,
        "counts": job.counts,
        "actor": job.actor,
        "started_at": job.started_at,
        "updated_at": job.updated_at,
        "ended_at": job.ended_at,
        "host": job.host,
        "pid": job.pid,
        "error": job.error,
        "plan": {name: value for name, value in job.plan.items() if value not in (None, [], False)},
        "spans": [
            {"partition": s.partition, "start": s.start, "position": s.position, "end": s.end} for s in job.spans
        ],
        "report": job.report,
    }


def _joined(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
