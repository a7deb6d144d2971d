"""The contiguous watermark of one partition, for one assignment.

Tracks only records that were received, in the order of their offsets, so gaps (compaction, control records, aborted
transactions) need no special case.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Tracked(Protocol):
    """A record in flight: its offset, and whether its outcome is durable."""

    offset: int
    finished: bool


T = TypeVar("T", bound=Tracked)


class Watermark(Generic[T]):
    """First unfinished offset, or the consumer's position when nothing is unfinished."""

    __slots__ = ("_items", "_position")

    def __init__(self, position: int) -> None:
        self._items: deque[T] = deque()
        self._position = position

    def __iter__(self) -> Iterator[T]:
        """What was received and is not below the watermark yet, in order; finished items behind a gap included."""
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def receive(self, items: Iterable[T], position: int) -> None:
        """Take what one fetch delivered, with the position read in the same step.

        The position may be ahead of the last record: it steps over control records.
        """
        self._items.extend(items)
        self._position = max(self._position, position)

    def advance(self) -> int:
        """Forget the finished head and return the offset that may be committed."""
        items = self._items
        while items and items[0].finished:
            items.popleft()
        return items[0].offset if items else self._position
