"""Seen before, forgotten since: which positions of a topic were finished so long ago that their entries may be gone."""

from collections.abc import Iterable, Sequence

from worker.engine.items import Item
from worker.engine.routes import Route
from worker.rules.lanes import Forgotten, Lane, remember_forgotten


async def remember(feeds: Forgotten, topic: str, routes: Sequence[Route], lanes: Iterable[Lane]) -> None:
    """Tell the lanes of a topic what may be forgotten, for every handler that reads it."""
    operations = {route.plan.operation for route in routes if topic in route.handler.topics}
    await remember_forgotten(feeds, topic, operations, lanes)


def may_be_forgotten(lane: Lane, item: Item) -> bool:
    """Whether an item without an entry may have been done: its position was finished, longer ago than its TTL."""
    return lane.may_be_forgotten(item.record.offset, item.plan.operation)
