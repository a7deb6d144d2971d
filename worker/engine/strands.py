"""Order per key: items of one strand start one after another, in the order of their offsets.

Only the first item of a strand and, once that has its claim, the second may be claimed: enough to hide the claim's
round trip, and few enough that a crash leaves little in doubt.
"""

from typing import Any

from worker.engine.items import Item, Stage
from worker.rules.lanes import Lane


class Strands:
    """The lines of items that must start in order. A strand is known by its last item; each item knows the next."""

    def __init__(self) -> None:
        self._last: dict[Any, Item] = {}

    def enter(self, item: Item) -> bool:
        """Line an item up; True when it may be claimed now."""
        strand = strand_of(item)
        if strand is None:
            return True
        item.strand = strand
        last = self._last.get(strand)
        self._last[strand] = item
        if last is None:
            return True
        last.next = item
        item.ahead = last
        return item.may_claim

    def leave(self, item: Item) -> tuple[Item, ...]:
        """Let an item go that has ended; gives those that may move now: the new first one, and the one behind it.

        An item that ends before it is first (a duplicate answered ahead) is passed over when its turn comes.
        """
        strand = item.strand
        if strand is None or item.ahead is not None:
            return ()
        following = item.next
        item.next = item.strand = None
        while following is not None and following.stage is Stage.ENDED:
            gone, following = following, following.next
            gone.next = gone.strand = gone.ahead = None
        if following is None:
            del self._last[strand]
            return ()
        following.ahead = None
        second = following.next
        return (following,) if second is None else (following, second)

    def forget(self, lane: Lane) -> None:
        """Drop the strands of a lane that was revoked: nothing of it starts any more."""
        for strand in [strand for strand, last in self._last.items() if last.lane is lane]:
            del self._last[strand]
        for item in lane.watermark:
            item.next = item.strand = item.ahead = None


def strand_of(item: Item) -> Any:
    """What keeps order among items: their Kafka key, their partition, or nothing. Lanes are never mixed."""
    order = item.route.handler.order
    if order == "none" or item.lane is None:
        return None
    if order == "partition":
        return id(item.lane)
    key = item.record.key
    return None if key is None else (id(item.lane), key)
