"""What `pause` and `resume` have in common: which handler or topic a word means, and how orders are printed."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.acting import print_json, print_table
from worker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.ledger.orders import OrderBook
    from worker.rules.orders import Pause

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="HANDLER|TOPIC", help="A handler (operation, or scope/operation) or a topic.", show_default=False
    ),
]
IsHandler = Annotated[bool, typer.Option("--handler", help="The name is a handler's.")]
IsTopic = Annotated[bool, typer.Option("--topic", help="The name is a topic's.")]


async def meant(book: "OrderBook", name: str, *, handler: bool, topic: bool) -> "Pause":
    """The one handler or topic that the name means; none and several are refused, with what there is."""
    from worker.rules.orders import Pause
    from worker.settings.near import near

    handlers, topics = await book.names()
    found = []
    if not topic:
        found += [Pause("handler", full) for full in handlers if name in (full, full.rpartition("/")[2])]
    if not handler:
        found += [Pause("topic", known) for known in topics if known == name]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(str(pause) for pause in found)
        raise UsageError(f"{name!r} can mean {several}\n  add --handler or --topic, or write scope/operation")
    known = [*([] if topic else handlers), *([] if handler else topics)]
    listed = f"this ledger knows {', '.join(known) or 'none yet: start a worker once'}"
    what = "handler" if handler else "topic" if topic else "handler or topic"
    raise UsageError(f"there is no {what} {name!r}\n  {near(name, known, otherwise=listed)}")


def print_pauses(rows: "Sequence[Any]", *, as_json: bool) -> None:
    """What is paused."""
    from worker.cli.keys.showing import length

    if as_json:
        print_json([{name: row[name] for name in ("what", "name", "since", "actor", "reason")} for row in rows])
    elif not rows:
        print("nothing is paused")
    else:
        lines = [(r["what"], r["name"], length(r["now"] - r["since"]), r["actor"], r["reason"]) for r in rows]
        print_table(("", "name", "paused for", "by", "reason"), lines)
