"""Which dead letters are meant, and where they are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.options import Config
from worker.errors import UsageError

if TYPE_CHECKING:
    from worker.app.redriving import Choice
    from worker.kafka.reader import Reader
    from worker.ledger.letters import Letters
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


def choice_of(
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


def run_in_loop(config: Config, work: Any) -> Any:
    import asyncio

    from worker.settings import load_settings

    return asyncio.run(work(load_settings(config)))


@asynccontextmanager
async def open_letters(
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
