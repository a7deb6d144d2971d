"""Order per key: items of one strand start one after another, in the order of their offsets.

At most two items of a strand have claims and have not started, each behind one that has its own: enough to hide the
claim's round trip behind the handlers, and few enough that a crash leaves little in doubt.
"""

from collections import defaultdict
from typing import Any, Final

from worker.engine.items import Item, Stage
from worker.rules.lanes import Lane

# The one strand of a lane whose order is that of the partition; no Kafka key is equal to it.
_PARTITION: Final = object()


class Strands:
    """The lines of items that must start in order. A strand is known by its last item; each item knows the next.

    Lanes are never mixed.
    """

    def __init__(self) -> None:
        self._last: defaultdict[Lane, dict[Any, Item]] = defaultdict(dict)

    def enter(self, item: Item) -> bool:
        """Line an item up; True when it may be claimed now."""
        order, lane = item.route.order, item.lane
        strand = item.record.key if order == "key" else None if order == "none" else _PARTITION
        if strand is None or lane is None:
            return True
        item.strand = strand
        strands = self._last[lane]
        last = strands.setdefault(strand, item)
        if last is item:
            return True
        strands[strand] = last.next = item
        item.ahead = last
        return item.may_claim

    def leave(self, item: Item) -> tuple[Item, ...]:
        """Let an item go that has ended; gives those that may move now: the new first one, and the one behind it.

        An item that ends before it is first (a duplicate answered ahead) is passed over when its turn comes.
        """
        strand = item.strand
        if strand is None or item.ahead is not None:
            return ()
        assert item.lane is not None
        following = item.next
        item.next = item.strand = None
        while following is not None and following.stage is Stage.ENDED:
            gone, following = following, following.next
            gone.next = gone.strand = gone.ahead = None
        if following is None:
            del self._last[item.lane][strand]
            return ()
        following.ahead = None
        second = following.next
        return (following,) if second is None else (following, second)

    def forget(self, lane: Lane) -> None:
        """Drop the strands of a lane that was revoked: nothing of it starts any more."""
        self._last.pop(lane, None)
        for item in lane.watermark:
            item.next = item.strand = item.ahead = None
