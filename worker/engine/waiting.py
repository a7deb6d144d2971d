"""Waiting: for a claim of the same key, here or elsewhere, and for a due time. Nothing that waits stops other keys."""

import asyncio
from collections.abc import Callable

from worker.engine.items import Item, Stage
from worker.engine.ports import Claims
from worker.rules.claims import State
from worker.rules.entries import Row

_FIRST_LOOK = 0.05
_SLOWEST_LOOK = 1.0
_AT_ONCE = 500


class Waiting:
    """Items whose entry is in progress elsewhere, and items whose time has not come."""

    def __init__(
        self,
        claims: Claims,
        judge: Callable[[Item, Row | None], None],
        too_long: Callable[[Item], None],
        *,
        hold: float,
    ) -> None:
        self._claims = claims
        self._judge = judge
        self._too_long = too_long
        self._hold = hold
        self._elsewhere: dict[bytes, list[Item]] = {}
        self._later: set[asyncio.TimerHandle] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(items) for items in self._elsewhere.values()) + len(self._later)

    def elsewhere(self, item: Item, now: float) -> None:
        """Wait for another process to finish the entry; parked when that takes longer than `hold`."""
        item.stage = Stage.WAITING
        if not item.waiting_since:
            item.waiting_since = now
        self._elsewhere.setdefault(item.id, []).append(item)
        self._changed.set()

    def later(self, item: Item, delay: float, then: Callable[[Item], None]) -> None:
        """Wait in line until the entry is due."""
        item.stage = Stage.WAITING
        loop = asyncio.get_running_loop()

        def due() -> None:
            self._later.discard(handle)
            if not item.revoked:
                then(item)

        handle = loop.call_later(delay, due)
        self._later.add(handle)

    def forget_revoked(self) -> None:
        """Drop what waits for lanes that are gone: their next owner will wait instead."""
        for id_, items in list(self._elsewhere.items()):
            kept = [item for item in items if not item.revoked]
            if kept:
                self._elsewhere[id_] = kept
            else:
                del self._elsewhere[id_]

    async def watch(self, clock: Callable[[], float]) -> None:
        """Look up, in one batch, what others have in progress; runs as long as the pipeline."""
        pause = _FIRST_LOOK
        while True:
            if not self._elsewhere:
                pause = _FIRST_LOOK
                self._changed.clear()
                await self._changed.wait()
            await asyncio.sleep(pause)
            pause = min(_SLOWEST_LOOK, pause * 1.5)
            asked = list(self._elsewhere)
            rows: dict[bytes, Row] = {}
            for start in range(0, len(asked), _AT_ONCE):
                rows.update(await self._claims.look_up(asked[start : start + _AT_ONCE]))
            now = clock()
            for id_ in asked:
                row = rows.get(id_)
                items = self._elsewhere.get(id_, [])
                if row is not None and row.state is State.IN_PROGRESS:
                    patient = [i for i in items if now - i.waiting_since < self._hold]
                    impatient = [i for i in items if now - i.waiting_since >= self._hold]
                    self._elsewhere[id_] = patient
                    if not patient:
                        del self._elsewhere[id_]
                    for item in impatient:
                        self._too_long(item)
                    continue
                self._elsewhere.pop(id_, None)
                for item in items:
                    self._judge(item, row)
