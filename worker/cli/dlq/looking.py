"""`oncebox dlq list` and `show`: what lies there, and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.acting import AsJson, print_fields, print_json, print_table
from worker.cli.dlq.choosing import Key, Of, Since, Topic, Until, Why, choice_of, open_letters, run_in_loop
from worker.cli.options import Config
from worker.errors import UsageError

if TYPE_CHECKING:
    from worker.rules.dialects import Letter
    from worker.settings import Settings

_PREVIEW = 2000


def list_letters(
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
    choice = choice_of(why=why, handler=handler, key=key, since=since, until=until, handled=handled)

    async def read(settings: "Settings") -> tuple[list[tuple["Letter", str | None]], int]:
        from worker.app.redriving import find_letters, mark

        shown: list[tuple[Letter, str | None]] = []
        more = 0
        async with open_letters(settings, topic, choice) as (reader, spans, letters):
            done = await letters.handled()
            async for found in find_letters(reader, spans, choice, done):
                room = max(0, limit - len(shown))
                shown += [(letter, done.get(mark(letter))) for letter in found[:room]]
                more += len(found[room:])
        return shown, more

    found, more = run_in_loop(config, read)
    if as_json:
        print_json({"letters": [_plain(letter, handled=how) for letter, how in found], "more": more})
        return
    columns = ("at", "dead-lettered", "reason", "handler", "key", "source", "redrives", "message")
    print_table(columns, [_row(letter) for letter, _ in found])
    if more:
        print(f"and {more} more; --limit shows them")


def show(
    topic: Topic,
    place: Annotated[str, typer.Argument(metavar="PARTITION@OFFSET", help="Where it lies, as the list shows it.")],
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """One dead letter whole: where it came from, why it is here, its headers, the beginning of its value."""
    choice = choice_of(at=[place], handled=True)

    async def read(settings: "Settings") -> tuple["Letter", str | None] | None:
        from worker.app.redriving import find_letters, mark

        async with open_letters(settings, topic, choice) as (reader, spans, letters):
            done = await letters.handled()
            async for found in find_letters(reader, spans, choice, done):
                if found:
                    return found[0], done.get(mark(found[0]))
        return None

    found = run_in_loop(config, read)
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
