"""Batches: whatever has gathered goes out together; only crumbs wait, and only for a call that is under way."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from worker.engine.tasks import Tasks

T = TypeVar("T")
# Seconds after which a call keeps nothing waiting any more; looked at when something is added, and at every tick.
_HANGS = 0.05
CRUMBS = 32


class Batches(Generic[T]):
    """Hands what is ready to `call`, at most `size` at once and `calls` at the same time.

    Fewer than `crumbs` wait until a call under way has ended, or is found to hang: theirs would cost as much as one for
    many. But at low load, where there are only crumbs, none waits for others. While more are about to be added, nothing
    goes out before there are as many as make a call `worth` its cost.

    What is added in one step of the loop goes out together: the first look is taken after that step.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[list[T]], Awaitable[None]],
        tasks: Tasks,
        *,
        size: int,
        calls: int,
        crumbs: int = 1,
        worth: int = 1,
        room: Callable[[], int] | None = None,
        reserve: Callable[[int], None] | None = None,
    ) -> None:
        self._name = name
        self._call = call
        self._tasks = tasks
        self._size = size
        self._calls = calls
        # As many as may go at once are always enough.
        self._crumbs = min(crumbs, size)
        self._worth = min(worth, size)
        self._room = room
        self._reserve = reserve
        self._ready: deque[T] = deque()
        self._under_way = 0
        self._began = 0.0  # when the latest call did
        self._latest = 0  # for how many it is
        self._out = 0
        self._scheduled = False
        self._gathering = False

    def __len__(self) -> int:
        """How many are ready or under way."""
        return len(self._ready) + self._out

    @property
    def ready(self) -> int:
        """How many wait for a call."""
        return len(self._ready)

    def add(self, one: T) -> None:
        self._ready.append(one)
        if not self._scheduled:
            self.kick()

    def extend(self, many: Iterable[T], *, more: bool = False) -> None:
        """Add these; `more` promises `gathered()` within moments, and probably others before that."""
        self._ready.extend(many)
        self._gathering = more
        self.kick()

    def gathered(self) -> None:
        """What has been added needs to wait for no more."""
        self._gathering = False
        self.kick()

    def kick(self) -> None:
        """Look again, after this step of the loop, whether something can go out."""
        if not self._scheduled and self._ready and self._free:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    @property
    def _free(self) -> bool:
        return self._under_way < self._calls and self._is_enough(len(self._ready))

    def _is_enough(self, count: int) -> bool:
        if self._gathering and count < self._worth:
            return False
        crumbs = self._crumbs
        if count >= crumbs or not self._under_way:
            return True
        if self._latest < crumbs and len(self._ready) < crumbs:
            return True
        return asyncio.get_running_loop().time() - self._began > _HANGS

    def _pump(self) -> None:
        self._scheduled = False
        while self._ready and self._free:
            room = self._size if self._room is None else min(self._size, self._room())
            if room <= 0 or not self._is_enough(min(room, len(self._ready))):
                return
            ready = self._ready
            if len(ready) <= room:
                batch = list(ready)
                ready.clear()
            else:
                batch = [ready.popleft() for _ in range(room)]
            self._under_way += 1
            self._latest = len(batch)
            self._began = asyncio.get_running_loop().time()
            self._out += len(batch)
            if self._reserve is not None:
                # Before the task runs: the next batch of this very look must not count the same room.
                self._reserve(len(batch))
            self._tasks.spawn(self._run(batch), self._name)

    async def _run(self, batch: list[T]) -> None:
        try:
            await self._call(batch)
        finally:
            self._under_way -= 1
            self._out -= len(batch)
            self.kick()
