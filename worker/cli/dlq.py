"""`oncebox dlq`: dead letters, whoever wrote them: list, show, redrive, discard."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.acting import (
    AsJson,
    Reason,
    Yes,
    actor,
    confirm,
    given_reason,
    print_fields,
    print_json,
    print_table,
)
from worker.cli.options import Config, Registries
from worker.errors import UsageError

if TYPE_CHECKING:
    from worker.app.redriving import Choice
    from worker.kafka.reader import Reader
    from worker.ledger.letters import Letters
    from worker.rules.dialects import Letter
    from worker.rules.windows import Span
    from worker.settings import Settings

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The dead-letter topic, or the topic whose dead letters are meant.")
]
Why = Annotated[
    list[str] | None, typer.Option("--why", metavar="REASON", help="Only of this reason (misuse, …); may be repeated.")
]
Of = Annotated[str | None, typer.Option("--handler", metavar="NAME", help="Only of this handler or operation.")]
Key = Annotated[str | None, typer.Option("--key", help="Only with this idempotency key, or Kafka key.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Dead-lettered since; 9d for ago.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Dead-lettered before.")]
At = Annotated[
    list[str] | None, typer.Option("--at", metavar="PARTITION@OFFSET", help="Only this one; may be repeated.")
]
_PREVIEW = 2000

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Dead letters: list, show, redrive, discard; six dialects are read.",
)


@app.command("list")
def list_(
    topic: Topic,
    *,
    why: Why = None,
    handler: Of = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most of them, oldest first.")] = 100,
    handled: Annotated[bool, typer.Option("--all", help="Also those that were redriven or discarded.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Dead letters that nobody has dealt with."""
    choice = _choice(why=why, handler=handler, key=key, since=since, until=until, handled=handled)

    async def read(settings: "Settings") -> tuple[list[tuple["Letter", str | None]], int]:
        from worker.app.redriving import find_letters, mark

        shown: list[tuple[Letter, str | None]] = []
        more = 0
        async with _open(settings, topic, choice) as (reader, spans, letters):
            done = await letters.handled()
            async for found in find_letters(reader, spans, choice, done):
                room = max(0, limit - len(shown))
                shown += [(letter, done.get(mark(letter))) for letter in found[:room]]
                more += len(found[room:])
        return shown, more

    found, more = _run(config, read)
    if as_json:
        print_json({"letters": [_plain(letter, handled=how) for letter, how in found], "more": more})
        return
    columns = ("at", "dead-lettered", "reason", "handler", "key", "source", "redrives", "message")
    print_table(columns, [_row(letter) for letter, _ in found])
    if more:
        print(f"and {more} more; --limit shows them")


@app.command("show")
def show(
    topic: Topic,
    place: Annotated[str, typer.Argument(metavar="PARTITION@OFFSET", help="Where it lies, as the list shows it.")],
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """One dead letter whole: where it came from, why it is here, its headers, the beginning of its value."""
    choice = _choice(at=[place], handled=True)

    async def read(settings: "Settings") -> tuple["Letter", str | None] | None:
        from worker.app.redriving import find_letters, mark

        async with _open(settings, topic, choice) as (reader, spans, letters):
            done = await letters.handled()
            async for found in find_letters(reader, spans, choice, done):
                if found:
                    return found[0], done.get(mark(found[0]))
        return None

    found = _run(config, read)
    if found is None:
        raise UsageError(f"there is no dead letter at {place}")
    letter, how = found
    plain = {**_plain(letter, handled=how), "value": _preview(letter.record.value)}
    headers = [(name, value) for name, value in letter.record.headers]
    if as_json:
        print_json({**plain, "headers": headers})
        return
    print_fields(plain)
    print_table(("header", "value"), headers)


@app.command("redrive")
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
    concurrency: Annotated[int | None, typer.Option("--concurrency", min=1, help="Handlers at once.")] = None,
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

    choice = _choice(why=why, handler=handler, key=key, since=since, until=until, at=at)
    settings = load_settings(config)
    registry = load_registry(registries or settings.engine.handlers)
    reason = "" if dry_run else given_reason(reason)
    given = None if to is None else find_handler(registry, to)
    terms = Terms(actor(), reason, cap, rate, concurrency, run_beyond_ttl, given)
    showing = shower(as_json=as_json)

    async def work(stop: asyncio.Event) -> int:
        async with _open(settings, topic, choice) as (reader, spans, _):
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


@app.command("discard")
def discard(
    topic: Topic,
    *,
    reason: Reason,
    why: Why = None,
    handler: Of = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    at: At = None,
    yes: Yes = False,
    config: Config = None,
) -> None:
    """Mark dead letters as dealt with: they are no longer listed. Kafka keeps them until its retention is over."""
    text = given_reason(reason)
    choice = _choice(why=why, handler=handler, key=key, since=since, until=until, at=at)

    async def act(settings: "Settings") -> int:
        import asyncio

        from worker.app.redriving import find_letters, mark
        from worker.ledger.audit import Act

        async with _open(settings, topic, choice) as (reader, spans, letters):
            done = await letters.handled()
            total = 0
            async for found in find_letters(reader, spans, choice, done):
                total += len(found)
            if not total:
                return 0
            await asyncio.to_thread(confirm, f"Discard {total} dead letters of {reader.topic}?", yes=yes)
            discarded = 0
            async for found in find_letters(reader, spans, choice, done):
                acts = {
                    mark(x): Act(actor(), "discard", f"{reader.topic}/{x.place}", text, x.reason, "discarded", x.source)
                    for x in found
                }
                discarded += len(await letters.discard(acts)) if acts else 0
            return discarded

    print(f"discarded {_run(config, act)}")


def _choice(
    *,
    why: list[str] | None = None,
    handler: str | None = None,
    key: str | None = None,
    since: str | None = None,
    until: str | None = None,
    at: list[str] | None = None,
    handled: bool = False,
) -> "Choice":
    from datetime import UTC, datetime

    from worker.app.redriving import Choice
    from worker.rules.windows import Window, moment

    now = datetime.now(UTC)
    window = Window(
        None if since is None else moment(since, now, "--since"),
        None if until is None else moment(until, now, "--until"),
    )
    places = tuple(_place(text) for text in at or ())
    return Choice(window, tuple(why or ()), handler, None if key is None else key.encode(), places, handled)


def _place(text: str) -> tuple[int, int]:
    partition, _, offset = text.rpartition("/")[2].partition("@")
    if not (partition.isdigit() and offset.isdigit()):
        raise UsageError(f"{text!r} is no place\n  write PARTITION@OFFSET, as `oncebox dlq list` shows it")
    return int(partition), int(offset)


def _run(config: Config, work: Any) -> Any:
    import asyncio

    from worker.settings import load_settings

    return asyncio.run(work(load_settings(config)))


@asynccontextmanager
async def _open(
    settings: "Settings", topic: str, choice: "Choice"
) -> AsyncIterator[tuple["Reader", "list[Span]", "Letters"]]:
    """A reader of the dead-letter topic that is meant, what of it is there now, and what was done with it."""
    from worker.kafka.reader import open_reader
    from worker.kafka.topics import open_topics
    from worker.ledger.desk import open_desk
    from worker.ledger.letters import Letters
    from worker.observe.logs import notice
    from worker.rules.windows import Window

    prefixed = f"{settings.kafka.dead_letter_prefix}{topic}"
    async with open_topics(settings.kafka) as admin:
        if not topic.startswith(settings.kafka.dead_letter_prefix) and await admin.partitions([prefixed]):
            topic = prefixed
    async with open_reader(settings.kafka, topic, notice) as reader, open_desk(settings.database) as desk:
        partitions = tuple({partition for partition, _ in choice.places})
        spans = await reader.spans(Window(choice.window.since, partitions=partitions))
        yield reader, spans, Letters(desk.line, desk.queries, topic)


def _row(letter: "Letter") -> tuple[Any, ...]:
    from worker.rules.windows import shown

    message = letter.message if letter.message is None or len(letter.message) <= 80 else letter.message[:79] + "…"
    time = shown(letter.record.timestamp)
    return (letter.place, time, letter.reason, letter.handler, letter.key, letter.source, letter.redrives, message)


def _plain(letter: "Letter", *, handled: str | None) -> dict[str, Any]:
    from worker.rules.windows import shown

    record = letter.record
    return {
        "at": letter.place,
        "topic": record.topic,
        "dead_lettered_at": shown(record.timestamp),
        "reason": letter.reason,
        "message": letter.message,
        "handler": letter.handler,
        "tenant": letter.tenant,
        "key": letter.key,
        "source": letter.source,
        "source_time": None if letter.timestamp is None else shown(letter.timestamp),
        "group": letter.group,
        "attempts": letter.attempts,
        "redrives": letter.redrives,
        "dialect": letter.dialect,
        "handled": handled,
        "value_bytes": None if record.value is None else len(record.value),
        "kafka_key": record.key,
    }


def _preview(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value[:_PREVIEW].decode(errors="backslashreplace")
    return text if len(value) <= _PREVIEW else f"{text}… ({len(value)} bytes)"
