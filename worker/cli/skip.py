"""`oncebox skip`."""

from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.acting import AsJson, Reason, actor, given_reason, print_json
from worker.cli.options import Config
from worker.errors import UsageError, WrongState

if TYPE_CHECKING:
    from worker.rules.orders import Position
    from worker.settings import Settings


def skip(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", show_default=False)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", show_default=False)],
    *,
    reason: Reason = "",
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Let the group finish one record without running it: it becomes a dead letter `skipped`.

    A worker does it within about a second, or when it meets the record. A record whose handler runs at that moment ends
    as its handler ends.
    """
    import asyncio

    from worker.settings import load_settings

    why = given_reason(reason)
    settings = load_settings(config)
    asyncio.run(_skip(settings, (topic, partition, offset), why))
    place, group = f"{topic}/{partition}@{offset}", settings.kafka.group
    if as_json:
        print_json({"record": place, "group": group, "old_state": "unfinished", "new_state": "skipped"})
    else:
        print(f"{place} will be a dead letter `skipped` of group {group}: workers follow within about a second")


async def _skip(settings: "Settings", position: "Position", why: str) -> None:
    from worker.kafka.standing import standing
    from worker.ledger.desk import open_desk
    from worker.ledger.orders import OrderBook
    from worker.ledger.rulings import By

    topic, partition, offset = position
    async with open_desk(settings.database) as desk:
        found = await standing(settings.kafka, topic, partition)
        place, group = f"{topic}/{partition}", settings.kafka.group
        if found.committed is not None and offset < found.committed:
            raise WrongState(
                f"{place}@{offset} is finished: group {group} has committed {found.committed}",
                advice="what became of it is in its entry (`oncebox keys show`) or in the dead letters",
            )
        if not found.begin <= offset < found.end:
            raise UsageError(f"there is no record {place}@{offset}: the log holds {found.begin}..{found.end - 1}")
        await OrderBook(desk).skip(group, position, By(actor(), why))
