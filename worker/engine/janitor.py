"""The janitor: cleans up after time and crashes, in every worker, without a leader."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from worker.engine.ports import Notice
from worker.errors import ServiceUnavailable
from worker.rules.writes import Parked


class Settling(Protocol):
    async def end_lapsed(self) -> list[int]: ...
    async def settle(self) -> object: ...


class Lot(Protocol):
    async def take_due(self, operations: Sequence[int], most: int, again_in: float) -> list[Parked]: ...


class Janitor:
    """Ends lapsed sessions, settles their claims, brings back parked records whose time has come, tidies up."""

    def __init__(
        self,
        settling: Settling,
        lot: Lot,
        *,
        tidy: Callable[[], Awaitable[object]],
        release_strays: Callable[[], Awaitable[object]],
        bring: Callable[[Parked], None],
        operations: Sequence[int],
        every: float,
        hold: float,
        notice: Notice,
    ) -> None:
        self._settling = settling
        self._lot = lot
        self._tidy = tidy
        self._release_strays = release_strays
        self._bring = bring
        self._operations = operations
        self._every = every
        self._hold = hold
        self._notice = notice

    async def run(self) -> None:
        """Go round for ever; Postgres being away only delays it."""
        rounds = 0
        while True:
            await asyncio.sleep(self._every / 5)
            rounds += 1
            try:
                await self._once(rounds)
            except ServiceUnavailable as error:
                self._notice("janitor_delayed", error=str(error), next="trying again")

    async def _once(self, rounds: int) -> None:
        await self._tidy()
        if rounds % 5 == 0:
            await self._settling.end_lapsed()
            await self._settling.settle()
        if rounds % 20 == 0:
            await self._release_strays()
        for parked in await self._lot.take_due(self._operations, 100, self._hold * 2):
            self._bring(parked)
