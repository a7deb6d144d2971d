"""`oncebox resume`."""

from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.acting import AsJson, Reason, Yes, actor, confirm, given_reason, print_json
from worker.cli.options import Config
from worker.cli.ordering import IsHandler, IsTopic, Name, meant
from worker.errors import UsageError, WrongState

if TYPE_CHECKING:
    from worker.ledger.orders import OrderBook
    from worker.rules.orders import Pause
    from worker.settings import Settings


def resume(
    name: Name = None,
    *,
    reason: Reason = "",
    handler: IsHandler = False,
    topic: IsTopic = False,
    everything: Annotated[bool, typer.Option("--all", help="Everything that is paused.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Let the records of a paused handler or topic run again; workers follow within about a second."""
    import asyncio

    from worker.settings import load_settings

    if (name is None) is not everything:
        raise UsageError("name one handler or topic, or --all\n  `oncebox pause --list` shows what is paused")
    why = given_reason(reason)
    settings = load_settings(config)
    if name is not None:
        resumed = [asyncio.run(_resume(settings, name, why, handler=handler, topic=topic))]
    else:
        resumed = asyncio.run(_resume_all(settings, why, yes=yes))
    if as_json:
        print_json([{"what": p.what, "name": p.name, "old_state": "paused", "new_state": "running"} for p in resumed])
        return
    for pause in resumed:
        print(f"{pause} is resumed: workers run its records within about a second")


async def _resume(settings: "Settings", name: str, why: str, *, handler: bool, topic: bool) -> "Pause":
    from worker.ledger.desk import open_desk
    from worker.ledger.orders import OrderBook
    from worker.ledger.rulings import By

    async with open_desk(settings.database) as desk:
        book = OrderBook(desk)
        # A handler that nobody registers any more may still be paused: by its full name it can be resumed.
        paused = [p for p in await _paused(book) if p.name == name and not (handler and p.what == "topic")]
        wanted = paused[0] if len(paused) == 1 and not topic else None
        wanted = wanted or await meant(book, name, handler=handler, topic=topic)
        await book.resume(wanted, By(actor(), why))
        return wanted


async def _resume_all(settings: "Settings", why: str, *, yes: bool) -> "list[Pause]":
    from worker.ledger.desk import open_desk
    from worker.ledger.orders import OrderBook
    from worker.ledger.rulings import By

    async with open_desk(settings.database) as desk:
        book = OrderBook(desk)
        paused = await _paused(book)
        if not paused:
            raise WrongState("nothing is paused")
        confirm(f"Resume {', '.join(str(pause) for pause in paused)}?", yes=yes)
        for pause in paused:
            await book.resume(pause, By(actor(), why))
        return paused


async def _paused(book: "OrderBook") -> "list[Pause]":
    from worker.rules.orders import Pause

    return [Pause(row["what"], row["name"]) for row in await book.pauses()]
