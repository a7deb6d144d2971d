"""Runners: long-lived tasks that run handlers, so that a message costs no task of its own.

A runner that takes an item while more are ready wakes as many others as run just then, before it runs: handlers that
never wait are run by one runner in one go, handlers that wait spread over all runners in a few steps of the loop.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from worker.engine.items import Item
from worker.engine.tasks import Tasks

Runner = asyncio.Task[Any]
Call = Callable[[Item, Runner], Awaitable[None]]


class Runners:
    """At most `limit` handlers at once."""

    def __init__(self, call: Call, tasks: Tasks, *, limit: int) -> None:
        self._call = call
        self._tasks = tasks
        self._limit = limit
        self._ready: deque[Item] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._count = 0
        self._woken = 0  # runners on their way to an item
        self._context = contextvars.copy_context()
        self._clean = tuple(self._context.items())

    @property
    def crowd(self) -> int:
        """Items that wait because as many run as may."""
        return 0 if self._idle or self._count < self._limit else len(self._ready)

    def start(self, item: Item) -> None:
        """Run an item as soon as a runner is free."""
        self._ready.append(item)
        if not self._woken:
            self._wake()

    def start_all(self, items: Iterable[Item]) -> None:
        """Run each of these as soon as a runner is free."""
        self._ready.extend(items)
        if self._ready and not self._woken:
            self._wake()

    def _wake(self) -> None:
        idle = self._idle
        for _ in range(min(len(self._ready), max(1, self._count - len(idle)))):
            if idle:
                idle.pop().set_result(None)
            elif self._count < self._limit:
                self._count += 1
                self._context.copy().run(self._tasks.spawn, self._run(), "runner")
            else:
                return
            self._woken += 1

    async def _run(self) -> None:
        ready, call = self._ready, self._call
        runner = asyncio.current_task()
        assert runner is not None
        while True:
            self._woken -= 1
            while ready:
                item = ready.popleft()
                if ready and not self._woken:
                    self._wake()
                await call(item, runner)
                if self._dirty():
                    # The handler left values in context variables: the next message must not see them.
                    self._count -= 1
                    if ready and not self._woken:
                        self._wake()
                    return
            rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(rest)
            await rest

    def _dirty(self) -> bool:
        now: contextvars.Context = contextvars.copy_context()
        if len(now) != len(self._clean):
            return True
        return bool(self._clean) and any(now.get(variable) is not value for variable, value in self._clean)
