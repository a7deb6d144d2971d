"""The session of this process: one row whose lease keeps all of its claims alive.

Renewed from a thread and connection of its own, so that neither a busy event loop nor a slow claim can cost the lease;
the thread stops renewing when the main loop has not moved for a lease, so that a hung worker does die.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from worker.errors import ServiceUnavailable
from worker.ledger.clock import clock
from worker.ledger.connect import BROKEN, Connect, Line
from worker.version import VERSION

Notice = Callable[..., None]


class Session:
    """A lease in Postgres and the right to start work while it is safe."""

    def __init__(
        self, connect: Connect, queries: Mapping[str, str], *, lease: float, role: str, notice: Notice
    ) -> None:
        self.id = 0
        self.lease = lease
        self._line = Line(connect)
        self._queries = queries
        self._role = role
        self._notice = notice
        self._safe_until = 0.0
        self._pulse = clock()
        self._ended: list[int] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._first: asyncio.Future[None] | None = None

    def safe(self) -> bool:
        """Whether a handler or effect may start: the last acknowledged renewal was sent less than 2/3 lease ago."""
        return clock() < self._safe_until

    def beat(self) -> None:
        """Called by the main loop now and then: it moves."""
        self._pulse = clock()

    async def open(self) -> None:
        """Open the session and keep it from now on; raises what the first try raised."""
        loop = asyncio.get_running_loop()
        self._first = first = loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(loop, first), name="oncebox-session", daemon=True)
        self._thread.start()
        await first

    async def close(self) -> None:
        """Stop renewing and end the session; claims it leaves open are settled by others."""
        self._stop.set()
        self._safe_until = 0.0
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self, loop: asyncio.AbstractEventLoop, first: "asyncio.Future[None]") -> None:
        def tell(error: BaseException | None) -> None:
            if not first.done():
                first.set_exception(error) if error else first.set_result(None)

        async def main() -> None:
            try:
                await self._start()
            except BaseException as error:
                loop.call_soon_threadsafe(tell, error)
                return
            loop.call_soon_threadsafe(tell, None)
            await self._keep()

        asyncio.run(main())

    async def _start(self) -> None:
        sent = clock()
        arguments: list[Any] = [self._role, socket.gethostname(), os.getpid(), VERSION, self.lease]
        self.id = await self._line.fetchval(self._queries["open_session"], *arguments)
        self._safe_until = sent + self.lease * 2 / 3

    async def _keep(self) -> None:
        pause = self.lease / 3
        hung = False
        while not await asyncio.to_thread(self._stop.wait, pause):
            if clock() - self._pulse > self.lease:
                if not hung:
                    self._notice("session_renewal_stopped", session=self.id, why="the main loop does not move")
                hung = True
                continue
            hung = False
            try:
                await self._renew()
                pause = self.lease / 3
            except ServiceUnavailable as error:
                self._notice("session_renewal_failed", session=self.id, error=str(error))
                pause = min(1.0, self.lease / 10)
        await self._end()

    async def _renew(self) -> None:
        sent = clock()
        if await self._line.fetchval(self._queries["renew"], self.id) is not None:
            self._safe_until = sent + self.lease * 2 / 3
        else:
            self._ended.append(self.id)
            await self._start()
        # Kept until it is acknowledged: a carry-over that broke is repeated, or running handlers would be settled.
        while self._ended:
            carried = await self._line.fetch(self._queries["carry_over"], self._ended[-1], self.id)
            self._notice("session_replaced", ended=self._ended.pop(), session=self.id, carried_over=len(carried))

    async def _end(self) -> None:
        try:
            await self._line.fetch(self._queries["close_session"], self.id)
        except (ServiceUnavailable, *BROKEN) as error:
            self._notice(
                "session_close_failed", session=self.id, error=str(error), next="others end it when its lease lapses"
            )
        await self._line.close()
