"""`oncebox replay`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.acting import AsJson, actor, given_reason
from worker.cli.options import Config
from worker.cli.progress import quieter, shower
from worker.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from worker.app.choosing import Plan
    from worker.cli.progress import Bar, Lines
    from worker.rules.registry import Registry
    from worker.settings import Settings

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC [REGISTRY]...",
        help="The topic, then where handlers are registered (unset: ONCEBOX_HANDLERS). "
        "With --file or --resume there is no topic.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="From this time on: 2026-01-31T08:00:00Z, or 9d for ago.")
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Up to this time; `now` is the end of the log. Unset: up to where the live group is.",
    ),
]
EPILOG = (
    "Exit codes: 0 every record is done, 2 it ended but some records were dead-lettered, refused or parked (see the "
    "report), 3 stopped or cancelled before the end (go on with --resume), 1 failed, 64 the command line is wrong, "
    "69 Kafka or Postgres does not answer, 78 a setting or a handler's registration is wrong."
)

app = typer.Typer(add_completion=False, context_settings={"max_content_width": 100})


@app.command("replay", epilog=EPILOG)
def replay(
    words: Words = None,
    *,
    since: Since = None,
    until: Until = None,
    from_offset: Annotated[int | None, typer.Option("--from-offset", min=0, help="First offset.")] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="First offset that is not meant.")] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", help="Only this one; may be repeated.")] = None,
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Only this one; may be repeated.")] = None,
    exclude_tenant: Annotated[list[str] | None, typer.Option("--exclude-tenant", help="Not this one.")] = None,
    handler: Annotated[str | None, typer.Option("--handler", metavar="NAME", help="Only this handler's.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Records from a file: kcat -J, or one JSON a line.")
    ] = None,
    time_field: Annotated[
        str | None, typer.Option("--time-field", metavar="PATH", help="Of a file: where a payload has its time.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="Executions a second; replays are free.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Handlers at once, beside transactional ones.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,
    resume: Annotated[int | None, typer.Option("--resume", metavar="ID", help="Go on with this job.")] = None,
    results: Annotated[
        bool, typer.Option("--results/--no-results", help="Publish stored results of duplicates again, or not.")
    ] = True,
    run_beyond_ttl: Annotated[
        bool, typer.Option("--run-beyond-ttl", help="Also run what may have been done and forgotten; needs --reason.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the audit.")] = "",
    max_failures: Annotated[
        int | None, typer.Option("--max-failures", min=0, help="Stop when more records were dead-lettered or parked.")
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Go on although retention removed a part.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> int:
    """Run a backlog through the handlers once more: what is done is answered from its result, what is missing runs."""
    from worker.app.choosing import Plan, find_handler
    from worker.cli.loading import load_registry
    from worker.rules.windows import Window
    from worker.settings import load_settings

    names = list(words or ())
    topic = names.pop(0) if names and file is None and resume is None else None
    if resume is not None and (dry_run or file is not None or since or until or from_offset or to_offset):
        raise UsageError("--resume goes on with the job's own window\n  leave out --file, --dry-run and the window")
    if resume is None and file is None:
        _refuse_incomplete(topic, since, from_offset, to_offset, partition)
    settings = load_settings(config)
    if resume is not None and names and names[0] == _topic_of(settings, resume):
        names.pop(0)
    registry = load_registry(names or settings.engine.handlers)
    if resume is not None:
        changes = {"rate": rate, "concurrency": concurrency, "max_failures": max_failures}
        return _go_on(settings, registry, resume, as_json=as_json, **changes)
    plan = Plan(
        topic or "",
        Window(*_times(since, until), from_offset, to_offset, tuple(partition or ())),
        handler=None if handler is None else find_handler(registry, handler, topic),
        tenants=tuple(tenant or ()),
        exclude_tenants=tuple(exclude_tenant or ()),
        rate=rate,
        concurrency=concurrency,
        results=results,
        run_beyond_ttl=run_beyond_ttl,
        reason=given_reason(reason) if run_beyond_ttl and not dry_run else None,
        max_failures=max_failures,
        partial=partial,
    )
    if file is not None:
        if plan.handler is None:
            raise UsageError("whose records are in the file?\n  give --handler NAME")
        return _replay_file(settings, registry, plan, file, time_field, dry_run=dry_run, as_json=as_json)
    return _replay(settings, registry, plan, dry_run=dry_run, as_json=as_json)


def _refuse_incomplete(
    topic: str | None, since: str | None, first: int | None, past: int | None, partitions: list[int] | None
) -> None:
    if topic is None:
        raise UsageError("which topic?\n  oncebox replay TOPIC [REGISTRY]... --since TIME")
    if since is None and first is None:
        raise UsageError("from when on?\n  give --since TIME, or --partition N --from-offset OFFSET")
    if since is not None and first is not None:
        raise UsageError("--since and --from-offset are two beginnings\n  give one of them")
    if (first is not None or past is not None) and len(partitions or ()) != 1:
        raise UsageError("an offset means something on one partition only\n  give one --partition")


def _topic_of(settings: "Settings", job: int) -> str:
    import asyncio

    from worker.app.jobbing import find_job

    return asyncio.run(find_job(settings.database, job)).topic


def _times(since: str | None, until: str | None) -> "tuple[int | None, int | None]":
    from datetime import UTC, datetime

    from worker.rules.windows import moment

    now = datetime.now(UTC)
    return (
        None if since is None else moment(since, now, "--since"),
        None if until is None else moment(until, now, "--until"),
    )


def _replay(settings: "Settings", registry: "Registry", plan: "Plan", *, dry_run: bool, as_json: bool) -> int:
    import asyncio

    from worker.app.forecast import forecast
    from worker.app.process import run_until_signalled
    from worker.app.replaying import replay as run_replay

    show = shower(as_json=as_json)

    async def work(stop: asyncio.Event) -> int:
        if not dry_run:
            return await run_replay(settings, registry, plan, actor=actor(), show=show, stop=stop)
        return await _look(forecast(settings, registry, plan, show), show, stop)

    return run_until_signalled(quieter(settings, show), work)


def _replay_file(
    settings: "Settings",
    registry: "Registry",
    plan: "Plan",
    file: Path,
    time_field: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    import asyncio

    from worker.app.filing import Lines, forecast_file, replay_file
    from worker.app.process import run_until_signalled

    show = shower(as_json=as_json)
    lines = Lines.of(file, time_field)

    async def work(stop: asyncio.Event) -> int:
        if not dry_run:
            return await replay_file(settings, registry, plan, lines, actor=actor(), show=show, stop=stop)
        return await _look(forecast_file(settings, registry, plan, lines), show, stop)

    return run_until_signalled(quieter(settings, show), work)


async def _look(
    looking: "Coroutine[Any, Any, dict[str, Any] | None]", show: "Bar | Lines", stop: "asyncio.Event"
) -> int:
    """Look at the backlog until that is done, or a signal ends it."""
    import asyncio

    task, stopped = asyncio.ensure_future(looking), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    if task.cancelled():
        return 3
    report = task.result()
    if report is not None:
        show.end(report)
    return 0


def _go_on(
    settings: "Settings",
    registry: "Registry",
    job: int,
    *,
    as_json: bool,
    **changes: float | None,
) -> int:
    import asyncio

    from worker.app.process import run_until_signalled
    from worker.app.resuming import resume

    show = shower(as_json=as_json)

    async def work(stop: asyncio.Event) -> int:
        return await resume(settings, registry, job, show=show, stop=stop, **changes)

    return run_until_signalled(quieter(settings, show), work)
