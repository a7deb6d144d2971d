"""`oncebox dlq redrive`: dead letters run again."""

from typing import Annotated

import typer

from worker.cli.acting import AsJson, Yes, actor, confirm, given_reason
from worker.cli.dlq.choosing import At, Key, Of, Since, Topic, Until, Why, choice_of, open_letters
from worker.cli.options import Config, Registries


def redrive(
    topic: Topic,
    registries: Registries = None,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the audit.")] = "",
    why: Why = None,
    handler: Of = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    at: At = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,
    rate: Annotated[float | None, typer.Option("--rate", min=0.01, help="Executions a second.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Handlers at once, beside transactional ones.")
    ] = None,
    cap: Annotated[int, typer.Option("--cap", min=1, help="Refuse letters that were redriven so often.")] = 5,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="The handler of letters that do not say whose they are.")
    ] = None,
    run_beyond_ttl: Annotated[
        bool, typer.Option("--run-beyond-ttl", help="Also run what may have been done and forgotten.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    config: Config = None,
) -> int:
    """Run dead letters again, from the bytes they were, through the normal claim path; attempts start anew.

    Exit codes as of `oncebox replay`: 0 all done, 2 some were refused, parked or dead-lettered again, 3 stopped.
    """
    import asyncio

    from worker.app.choosing import find_handler
    from worker.app.process import run_until_signalled
    from worker.app.redriving import Errand, Terms, forecast_redrive
    from worker.app.redriving import redrive as run_redrive
    from worker.cli.loading import load_registry
    from worker.cli.progress import quieter, shower
    from worker.settings import load_settings

    choice = choice_of(why=why, handler=handler, key=key, since=since, until=until, at=at)
    settings = load_settings(config)
    registry = load_registry(registries or settings.engine.handlers)
    reason = "" if dry_run else given_reason(reason)
    given = None if to is None else find_handler(registry, to)
    terms = Terms(actor(), reason, cap, rate, concurrency, run_beyond_ttl, given)
    showing = shower(as_json=as_json)

    async def work(stop: asyncio.Event) -> int:
        async with open_letters(settings, topic, choice) as (reader, spans, _):
            errand = Errand(settings, registry, reader, spans, choice, terms)
            told = await forecast_redrive(errand)
            total = told["records"]
            if dry_run or not total:
                if total:
                    showing.end(told)
                else:
                    showing.nothing(f"no dead letter of {reader.topic} is meant")
                return 0
            classes = ", ".join(f"{name} {count}" for name, count in sorted(told["classes"].items()))
            await asyncio.to_thread(confirm, f"Redrive {total} dead letters of {reader.topic} ({classes})?", yes=yes)
            return await run_redrive(errand, total=total, show=showing, stop=stop)

    return run_until_signalled(quieter(settings, showing), work)
