"""Virtual time for the loop a test runs in: while a box drives, an idle loop jumps to its next timer.

Everything stays in the test's own loop and thread, so a handler may await what the test made, and the other way round.
Outside a box's calls time flows as usual. The loop must be asyncio's own selector loop, which pytest-asyncio uses.
"""

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from worker.errors import ConfigError
from worker.testing.clock import VirtualClock

T = TypeVar("T")

# Real seconds an open socket may take to answer a handler before time jumps on.
_PATIENCE = 0.02
# A timer fires a little after its time, never a rounding error before it: what compares times would go in circles.
_LATE = 1e-6
# Rounds of the loop without any wait and without an outcome, after which the engine goes in circles.
_CIRCLES = 50_000


class Jumping(selectors.BaseSelector):
    """Stands in front of the loop's selector and decides, whenever the loop would wait, whether to jump instead."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: VirtualClock) -> None:
        inner = getattr(loop, "_selector", None)
        if not isinstance(inner, selectors.BaseSelector):
            raise ConfigError(
                f"a box cannot give {type(loop).__name__} virtual time",
                advice="run its tests on asyncio's own event loop, which is what pytest-asyncio does by default",
            )
        self.clock = clock
        self.handling: list[Callable[[], object]] = []  # one per open box: truthy while its handlers run
        self._loop = loop
        self._inner = inner
        self._base = loop.time() - clock.seconds
        self._drives = 0
        self._threads = 0
        self._rounds = 0
        self._circling: asyncio.Future[None] = loop.create_future()
        self._calm: list[asyncio.Future[None]] = []
        vars(loop).update(_selector=self, time=self._time, run_in_executor=self._run_in_executor)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, clock: VirtualClock | None) -> "Jumping":
        """The one that is at work in this loop, or a new one; boxes of one loop share one clock."""
        present = getattr(loop, "_selector", None)
        if not isinstance(present, Jumping):
            return cls(loop, clock or VirtualClock())
        if clock not in (None, present.clock):
            raise ConfigError("another box is open in this test with another clock", advice="give both the same clock")
        return present

    def leave(self, handling: Callable[[], object]) -> None:
        """A box closes; the last one gives the loop back. Its time goes on from here: timers keep their distance."""
        self.handling.remove(handling)
        if self.handling:
            return
        ahead = self._time() - time.monotonic()
        vars(self._loop).update(_selector=self._inner, time=lambda: time.monotonic() + ahead)
        del vars(self._loop)["run_in_executor"]

    async def drive(self, work: Awaitable[T]) -> T:
        """Wait for this while time jumps; fails when the loop goes round and round without waiting for anything."""
        future = asyncio.ensure_future(work)
        self._drives += 1
        try:
            await asyncio.wait((future, self._circling), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                raise AssertionError("the engine goes in circles: nothing finishes, and nothing waits for time to pass")
            return await future
        finally:
            self._drives -= 1
            future.cancel()

    async def calm(self) -> None:
        """Wait until nothing more can happen at this moment: what is left waits for time or for the outside."""
        moment = self._loop.create_future()
        self._calm.append(moment)
        await moment

    def progress(self) -> None:
        """Something was finished: the loop does not go in circles."""
        self._rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._inner.select(0)
        if ready or (timeout is not None and timeout <= 0):
            self._rounds += 1
            if self._rounds > _CIRCLES and self._drives and not self._circling.done():
                self._circling.set_result(None)
            return ready
        self._rounds = 0
        if self._calm and not self._threads:
            moments, self._calm = self._calm, []
            for moment in moments:
                if not moment.done():
                    moment.set_result(None)
            return ready
        if not self._drives or self._threads or timeout is None:
            return self._wait(timeout)
        due = self.clock.seconds + timeout + _LATE
        # More than the loop's own wake-up pipe is registered: a handler may be waiting for an answer from outside.
        if len(self._inner.get_map()) > 1 and any(busy() for busy in self.handling):
            ready = self._wait(min(timeout, _PATIENCE))
        if not ready:
            self.clock.seconds = max(self.clock.seconds, due)
        return ready

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        started = time.monotonic()
        ready = self._inner.select(timeout)
        self.clock.seconds += time.monotonic() - started
        return ready

    def _time(self) -> float:
        return self._base + self.clock.seconds

    def _run_in_executor(self, executor: Any, call: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        future = type(self._loop).run_in_executor(self._loop, executor, call, *arguments)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._threads -= 1

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.get_key(fileobj)

    def close(self) -> None:
        self._inner.close()
