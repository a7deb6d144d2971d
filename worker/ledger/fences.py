"""Fences, drawn ahead in blocks, and which of them are open or lost."""

from collections import Counter
from collections.abc import Callable, Iterable

from worker.ledger.clock import clock

BLOCK = 1000
# A block is used only while it is young: the fences of a key rise across a prune, too, because an entry is pruned only
# long after its claim, when every block that was drawn before that claim has been thrown away.
LIFETIME = 60.0


class Fences:
    """The fences of this process. Rising, never reused, one per claim statement."""

    def __init__(self, now: Callable[[], float] = clock) -> None:
        self.now = now
        self._next = 0
        self._end = 0
        self._good_until = 0.0
        self._open: dict[int, int] = {}
        self._finished: list[int] = []
        self.calling: set[int] = set()  # claim statements under way
        self.lost: set[int] = set()  # claim statements without an answer: they may commit yet

    @property
    def empty(self) -> bool:
        return self._next == self._end or self.now() >= self._good_until

    def refill(self, first: int, asked_at: float) -> None:
        """Take a block that was asked for at that time; one that was overtaken by a later one is thrown away."""
        if first >= self._end:
            self._next, self._end, self._good_until = first, first + BLOCK, asked_at + LIFETIME

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

    def lose(self, fence: int) -> None:
        """Whoever asked will not hear what this claim statement gave: its claims must be retaken or released."""
        self._open.pop(fence, None)
        self.lost.add(fence)

    def closed(self, fences: Iterable[int]) -> None:
        """Claims left in_progress, one fence each; a claim must be told once, or its batch looks finished too early."""
        for fence, claims in Counter(fences).items():
            left = self._open.get(fence)
            if left is None:
                continue
            if left > claims:
                self._open[fence] = left - claims
            else:
                del self._open[fence]
                self._finished.append(fence)

    def held(self) -> set[int]:
        """Fences of claims that this process has, or may be getting just now. Callable from any thread."""
        # In this order: what is answered meanwhile is opened before it is no longer called.
        return {*self.calling.copy(), *self._open.copy()}

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
