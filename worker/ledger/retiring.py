"""What operators see of feeds, and the end of a feed's hold by their decision; with an audit, or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from worker.ledger.audit import Act, write_audit
from worker.ledger.desk import Desk
from worker.ledger.feeds import read_feed
from worker.rules.horizons import Feed, GoOn


async def list_feeds(desk: Desk) -> list[Feed]:
    """Every feed there is, retired ones too."""
    return [read_feed(row) for row in await desk.line.fetch(desk.queries["standing_feeds"], None)]


async def operation_names(desk: Desk) -> dict[int, str]:
    """Operations by number."""
    rows = await desk.line.fetch(desk.queries["known_operations"])
    return {row["id"]: f"{row['scope']}/{row['operation']}" for row in rows}


async def retire(
    desk: Desk, feeds: Sequence[Feed], going_on: Mapping[int, GoOn], act: Act, *, topic_id: bytes | None
) -> None:
    """Retire feeds of one topic; those of held partitions go on where it says. One transaction with its audit.

    Only what no longer belongs to the log is forgotten of the past: rewinding must not repeat the rest.
    """
    id_ = None if topic_id is None else UUID(bytes=topic_id)
    async with desk.line.transaction() as tx:
        for feed in feeds:
            to = going_on.get(feed.partition)
            place = (feed.group, feed.topic, feed.partition)
            await tx.execute(
                desk.queries["retire_feed"], *place, None if to is None else to.position, id_ if to else None
            )
            if to is not None and to.anew:
                await tx.execute(desk.queries["forget_samples"], *place)
            if to is not None and to.cut_to is not None:
                await tx.execute(desk.queries["cut_samples"], feed.topic, feed.partition, to.cut_to)
                await tx.execute(desk.queries["cut_prunes"], feed.topic, feed.partition, to.cut_to)
            new = "retired" if to is None else f"retired, goes on at offset {to.position}"
            old = "retired" if feed.retired_at else f"held: {feed.held_why}" if feed.held_why else "live"
            await write_audit(tx, desk.queries, replace(act, subject=f"feed {feed.name}", old=old, new=new))
