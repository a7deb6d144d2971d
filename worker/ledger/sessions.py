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

from worker.ledger.clock import clock
from worker.ledger.connect import Connect, Line, Watch
from worker.version import VERSION

Notice = Callable[..., None]


class Session:
    """A lease in Postgres and the right to start work while it is safe."""

    def __init__(
        self,
        connect: Connect,
        queries: Mapping[str, str],
        *,
        lease: float,
        role: str,
        held: Callable[[], set[int]],
        notice: Notice,
        watch: Watch | None = None,
    ) -> None:
        self.id = 0
        self.lease = lease
        self._line = Line(connect, watch)
        self._queries = queries
        self._role = role
        self._held = held
        self._notice = notice
        self._safe_until = 0.0
        self._pulse = clock()
        self._ended: list[int] = []
        self._uncovered: frozenset[int] = frozenset()
        self._stopping = False
        self._nudge = threading.Event()
        self._thread: threading.Thread | None = None

    def safe(self) -> bool:
        """Whether a handler or effect may start: the last acknowledged renewal was sent less than 2/3 lease ago."""
        return clock() < self._safe_until

    def covers(self, fence: int) -> bool:
        """Whether a handler or effect of this claim may start: safe, and the claim lives under the session of now.

        A claim that was settled with an earlier session of this process is not: another verdict may be about to let it
        run elsewhere. Its own late result or proof is still welcome.
        """
        return fence not in self._uncovered and clock() < self._safe_until

    def beat(self) -> None:
        """Called by the main loop now and then: it moves."""
        self._pulse = clock()

    def check(self) -> None:
        """Renew now rather than later: something looks as if the session had ended."""
        self._nudge.set()

    async def open(self) -> None:
        """Open the session and keep it from now on; raises what the first try raised."""
        self.beat()
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(loop, opened), name="oncebox-session", daemon=True)
        self._thread.start()
        try:
            await opened
        except BaseException:
            # Nobody will close a session whose opening was given up: its thread must not renew it for ever.
            self._stop()
            raise

    async def close(self) -> None:
        """Stop renewing and end the session; claims it leaves open are settled by others."""
        self._stop()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _stop(self) -> None:
        self._stopping = True
        self._nudge.set()

    def _run(self, loop: asyncio.AbstractEventLoop, opened: "asyncio.Future[None]") -> None:
        def tell(error: BaseException | None) -> None:
            if not opened.done():
                opened.set_exception(error) if error else opened.set_result(None)

        async def main() -> None:
            try:
                await self._start()
            except BaseException as error:
                loop.call_soon_threadsafe(tell, error)
                await self._line.close()
                return
            loop.call_soon_threadsafe(tell, None)
            await self._keep()
            await self._end()

        asyncio.run(main())

    async def _start(self) -> None:
        sent = clock()
        self.id = await self._new()
        self._safe_until = sent + self.lease * 2 / 3

    async def _new(self) -> int:
        arguments: list[Any] = [self._role, socket.gethostname(), os.getpid(), VERSION, self.lease]
        id_: int = await self._line.fetchval(self._queries["open_session"], *arguments)
        return id_

    async def _keep(self) -> None:
        pause = self.lease / 3
        hung = False
        while True:
            await asyncio.to_thread(self._nudge.wait, pause)
            self._nudge.clear()
            if self._stopping:
                return
            if clock() - self._pulse > self.lease:
                if not hung:
                    self._notice("session_renewal_stopped", session=self.id, why="the main loop does not move")
                hung = True
                continue
            hung = False
            try:
                await self._renew()
                pause = self.lease / 3
            except Exception as error:
                # Whatever it is: a thread that died here would leave a worker that neither works nor ends.
                self._notice("session_renewal_failed", session=self.id, error=f"{type(error).__name__}: {error}")
                pause = min(1.0, self.lease / 10)

    async def _renew(self) -> None:
        sent = clock()
        if await self._line.fetchval(self._queries["renew"], self.id) is None:
            await self._replace()
            return
        if self._ended:
            await self._carry_over()
        self._safe_until = sent + self.lease * 2 / 3

    async def _replace(self) -> None:
        """Go on under a new session; what runs is carried over to it, unless it was settled meanwhile."""
        self._safe_until = 0.0
        # Before anything is known about them, none of the claims of the ended session is covered by the new one.
        self._uncovered = frozenset(self._held())
        if self.id not in self._ended:
            self._ended.append(self.id)
        sent = clock()
        self.id = await self._new()
        await self._carry_over()
        self._safe_until = sent + self.lease * 2 / 3

    async def _carry_over(self) -> None:
        # Kept until all of it is acknowledged: a carry-over that broke is repeated, or running handlers are settled.
        carried = 0
        for ended in self._ended:
            carried += len(await self._line.fetch(self._queries["carry_over"], ended, self.id))
        covered = {row["fence"] for row in await self._line.fetch(self._queries["open_fences"], self.id)}
        self._uncovered -= covered
        self._notice(
            "session_replaced",
            ended=self._ended[-1],
            session=self.id,
            carried_over=carried,
            settled_meanwhile=len(self._uncovered),
        )
        self._ended.clear()

    async def _end(self) -> None:
        self._safe_until = 0.0
        try:
            await self._line.fetch(self._queries["close_session"], self.id)
        except Exception as error:
            self._notice(
                "session_close_failed", session=self.id, error=str(error), next="others end it when its lease lapses"
            )
        await self._line.close()
