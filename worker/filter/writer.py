"""Remembering, off everyone's path: rows gather while a pipeline is under way, and go out together with the next."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from worker.filter.breaker import Breaker, Notice
from worker.filter.sealed import Sealer, expiry_ms, fits
from worker.filter.wire import Wire, packed
from worker.rules.entries import Row

_MOST_WAITING: Final = 2000
_BATCH: Final = 500
_SHORTEST_MS: Final = 1000


class Writer:
    """The rows that wait to be written; what does not fit in is dropped, because it only saves work."""

    def __init__(
        self, wire: Wire, sealer: Sealer, prefix: bytes, *, now: Callable[[], float], timeout: float, notice: Notice
    ) -> None:
        self._wire = wire
        self._sealer = sealer
        self._prefix = prefix
        self._now = now
        self._timeout = timeout
        self._notice = notice
        # Not that of the reads: a Redis that is full or a replica refuses writes and still answers.
        self._breaker = Breaker("writes", notice)
        self._waiting: dict[bytes, Row] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows to be written after this step of the loop."""
        if self._closed or not self._breaker.ready:
            return
        waiting = self._waiting
        for row in rows:
            if len(waiting) >= _MOST_WAITING:
                break
            if fits(row):
                waiting[row.id] = row
        if waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write(), name="filter writer")
            self._task.add_done_callback(self._told)

    async def close(self) -> None:
        """Give what waits one timeout to be written, and drop the rest; nothing runs afterwards."""
        self._closed = True
        task = self._task
        if task is None:
            return
        try:
            await asyncio.wait({task}, timeout=self._timeout)
        finally:
            self._waiting.clear()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _write(self) -> None:
        try:
            while self._waiting:
                ids = list(islice(self._waiting, _BATCH))
                commands = list(self._commands([self._waiting.pop(id_) for id_ in ids]))
                if commands:
                    await self._wire.ask(packed(commands), len(commands), self._breaker)
        finally:
            # In the same step as the last look at what waits: a row added after it would wait for nobody.
            self._task = None

    def _commands(self, rows: Iterable[Row]) -> Iterable[tuple[str | int | bytes, ...]]:
        now_ms = int(self._now() * 1000)
        for row in rows:
            left_ms = expiry_ms(row) - now_ms
            if left_ms >= _SHORTEST_MS:
                yield b"SET", self._prefix + row.id, self._sealer.seal(row), b"PX", left_ms

    def _told(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._notice("filter_write_broke", error=repr(error), alert="a defect: rows are not remembered")
