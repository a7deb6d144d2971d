"""Batches: whatever has gathered goes out together, with no waiting for more."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from worker.engine.tasks import Tasks

T = TypeVar("T")


class Batches(Generic[T]):
    """Hands what is ready to `call`, at most `size` at once and `calls` at the same time.

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
        room: Callable[[], int] | None = None,
        reserve: Callable[[int], None] | None = None,
    ) -> None:
        self._name = name
        self._call = call
        self._tasks = tasks
        self._size = size
        self._calls = calls
        self._room = room
        self._reserve = reserve
        self._ready: deque[T] = deque()
        self._under_way = 0
        self._out = 0
        self._scheduled = False

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

    def extend(self, many: Iterable[T]) -> None:
        self._ready.extend(many)
        self.kick()

    def kick(self) -> None:
        """Look again, after this step of the loop, whether something can go out."""
        if not self._scheduled and self._ready and self._under_way < self._calls:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        while self._ready and self._under_way < self._calls:
            room = self._size if self._room is None else min(self._size, self._room())
            if room <= 0:
                return
            ready = self._ready
            if len(ready) <= room:
                batch = list(ready)
                ready.clear()
            else:
                batch = [ready.popleft() for _ in range(room)]
            self._under_way += 1
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
