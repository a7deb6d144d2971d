"""`oncebox skip`."""

from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.acting import AsJson, Reason, actor, given_reason, print_json
from worker.cli.options import Config
from worker.errors import UsageError, WrongState
from worker.rules.orders import Skip

if TYPE_CHECKING:
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
    as its handler ends. Where the partition is held (a record cannot be read, retention overtook the group), OFFSET
    becomes the position instead: everything below it is given up, and nothing is dead-lettered.
    """
    import asyncio

    from worker.settings import load_settings

    why = given_reason(reason)
    settings = load_settings(config)
    done = asyncio.run(_skip(settings, Skip(topic, partition, offset, why)))
    group = settings.kafka.group
    if as_json:
        old, new = ("held", f"read on from {offset}") if done.move else ("unfinished", "skipped")
        print_json({"record": str(done), "group": group, "old_state": old, "new_state": new})
    elif done.move:
        print(f"{topic}/{partition} is held, and will be read on from {offset}: workers follow within about a second")
    else:
        print(f"{done} will be a dead letter `skipped` of group {group}: workers follow within about a second")


async def _skip(settings: "Settings", skip: Skip) -> Skip:
    from dataclasses import replace

    from worker.kafka.standing import standing
    from worker.ledger.desk import open_desk
    from worker.ledger.orders import OrderBook
    from worker.ledger.rulings import By

    topic, partition, offset = skip.position
    async with open_desk(settings.database) as desk:
        found = await standing(settings.kafka, topic, partition)
        book, group = OrderBook(desk), settings.kafka.group
        by = By(actor(), skip.reason)
        if (why := await book.held(group, topic, partition)) is not None:
            # The end is a legal place, too: then nothing that is there now is read.
            if not max(found.begin, found.committed or 0) <= offset <= found.end:
                raise WrongState(
                    f"{topic}/{partition} is held ({why}) and cannot go on at {offset}: the log is {found.begin}.."
                    f"{found.end}, and group {group} has committed {found.committed}",
                    advice="name an offset that is in the log and not below what is committed; `oncebox feeds retire`"
                    " lets it go on where nothing is skipped",
                )
            moved = replace(skip, move=True)
            await book.skip(group, moved, by)
            return moved
        if found.committed is not None and offset < found.committed:
            raise WrongState(
                f"{skip} is finished: group {group} has committed {found.committed}",
                advice="what became of it is in its entry (`oncebox keys show`) or in the dead letters",
            )
        if not found.begin <= offset < found.end:
            raise UsageError(f"there is no record {skip}: the log holds {found.begin}..{found.end - 1}")
        await book.skip(group, skip, by)
        return skip
