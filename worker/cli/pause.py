"""`oncebox pause`."""

from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.acting import AsJson, Reason, actor, given_reason, print_json
from worker.cli.options import Config
from worker.cli.ordering import IsHandler, IsTopic, Name, meant, print_pauses
from worker.errors import UsageError

if TYPE_CHECKING:
    from worker.rules.orders import Pause
    from worker.settings import Settings


def pause(
    name: Name = None,
    *,
    reason: Reason = "",
    handler: IsHandler = False,
    topic: IsTopic = False,
    listed: Annotated[bool, typer.Option("--list", help="Show what is paused; changes nothing.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Hold the records of a handler or a topic, without a claim, until `oncebox resume`; what runs may end.

    Workers follow within about a second. Nothing is lost: held records keep their offsets, parked ones stay parked.
    """
    import asyncio

    from worker.settings import load_settings

    if listed:
        asyncio.run(_list(load_settings(config), as_json=as_json))
        return
    if name is None:
        raise UsageError("what is to be paused?\n  name a handler or a topic; --list shows what is paused")
    why = given_reason(reason)
    paused = asyncio.run(_pause(load_settings(config), name, why, handler=handler, topic=topic))
    if as_json:
        print_json({"what": paused.what, "name": paused.name, "old_state": "running", "new_state": "paused"})
    else:
        print(f"{paused} is paused: workers hold its records within about a second; what runs may end")


async def _pause(settings: "Settings", name: str, why: str, *, handler: bool, topic: bool) -> "Pause":
    from worker.ledger.desk import open_desk
    from worker.ledger.orders import OrderBook
    from worker.ledger.rulings import By

    async with open_desk(settings.database) as desk:
        book = OrderBook(desk)
        wanted = await meant(book, name, handler=handler, topic=topic)
        await book.pause(wanted, By(actor(), why))
        return wanted


async def _list(settings: "Settings", *, as_json: bool) -> None:
    from worker.ledger.desk import open_desk
    from worker.ledger.orders import OrderBook

    async with open_desk(settings.database) as desk:
        print_pauses(await OrderBook(desk).pauses(), as_json=as_json)
