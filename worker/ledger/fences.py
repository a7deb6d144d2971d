"""Fences, drawn ahead in blocks, and which of them are open or lost."""

from collections.abc import Iterable

BLOCK = 1000


class Fences:
    """The fences of this process. Rising, never reused, one per claim statement."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._open: dict[int, int] = {}
        self._finished: list[int] = []
        self.calling: set[int] = set()  # claim statements under way
        self.lost: set[int] = set()  # claim statements without an answer: they may commit yet

    @property
    def empty(self) -> bool:
        return self._next == self._end

    def refill(self, first: int) -> None:
        self._next, self._end = first, first + BLOCK

    def take(self) -> int:
        fence = self._next
        self._next += 1
        return fence

    def discard(self) -> None:
        """Throw the block away: a row already carries a higher fence, and claiming it again needs one above."""
        self._next = self._end

    def opened(self, fence: int, claims: int) -> None:
        """A claim statement was answered, and gave this many claims."""
        if claims:
            self._open[fence] = claims
        else:
            self._finished.append(fence)

    def closed(self, fences: Iterable[int]) -> None:
        """Claims left in_progress, one fence each."""
        counts = self._open
        for fence in fences:
            left = counts.get(fence)
            if left is None:
                continue
            if left == 1:
                del counts[fence]
                self._finished.append(fence)
            else:
                counts[fence] = left - 1

    def finished(self) -> list[int]:
        """Fences whose open-claims rows may be deleted; each is told once."""
        finished, self._finished = self._finished, []
        return finished

    def unfinished_again(self, fences: Iterable[int]) -> None:
        """The deletion broke: tell them again later."""
        self._finished.extend(fences)

    def strays(self, rows: Iterable[int]) -> list[int]:
        """Of the fences Postgres has open for us, those that memory does not know and no call under way can explain."""
        oldest = min(self.calling, default=self._next)
        known = self._open.keys() | set(self._finished)
        return [fence for fence in rows if fence not in known and fence < oldest]
