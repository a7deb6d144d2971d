"""Parking in memory: a record is kept, so that its offset may move on."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from worker.rules.claims import State
from worker.rules.writes import Parked, Parking, Place
from worker.testing.memory.tables import ParkedRow, Tables


class MemoryParkingLot:
    """The parked records."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def park(self, parkings: Sequence[Parking]) -> set[Place]:
        """Park records and hold their entries; the places that come back must be judged by their entries again."""
        moved_on = {parking.place for parking in parkings if not self._park(parking)}
        await asyncio.sleep(0)
        return moved_on

    async def finish(self, places: Sequence[Place]) -> None:
        """Remove parked records that are finished, and let go of their entries."""
        for place in places:
            if self._tables.parked.pop(place, None) is not None and place[0] in self._tables.entries:
                entry = self._tables.entries[place[0]]
                entry.held = max(0, entry.held - 1)
        await asyncio.sleep(0)

    async def take_due(
        self, operations: Sequence[int], most: int, again_in: float, *, topics: Sequence[str] = ()
    ) -> list[Parked]:
        """Parked records whose time has come, taken for a while; also those of these topics that have no operation."""
        now = self._tables.clock()
        due = [
            (row.due_at, place, row)
            for place, row in self._tables.parked.items()
            if row.due_at is not None
            and row.due_at <= now
            and (row.operation in operations or (row.operation is None and row.record.topic in topics))
        ]
        taken = sorted(due, key=lambda found: found[0])[:most]
        for _, _, row in taken:
            row.due_at = now + again_in
        await asyncio.sleep(0)
        return [Parked(place, row.operation, row.reason, row.record, row.detail) for _, place, row in taken]

    async def counts(self) -> dict[str, int]:
        return dict(Counter(row.reason for row in self._tables.parked.values()))

    def _park(self, parking: Parking) -> bool:
        tables, place = self._tables, parking.place
        due_at = None if parking.due is None else tables.clock() + parking.due
        known = tables.parked.get(place)
        if known is not None and not parking.again:
            return True
        if not self._may_wait(parking):
            return False
        if parking.again:
            if known is not None:
                known.due_at, known.reason, known.detail = due_at, parking.reason, parking.detail
            return True
        tables.parked[place] = ParkedRow(parking.record, parking.operation, parking.reason, due_at, parking.detail)
        if parking.id is not None:
            tables.entries[parking.id].held += 1
        return True

    def _may_wait(self, parking: Parking) -> bool:
        """Whether something will wake the record: its due time, or its entry's leaving `unknown`."""
        if parking.id is None or (parking.again and (parking.owed or parking.due is not None)):
            return True
        entry = self._tables.entries.get(parking.id)
        if parking.owed:
            return entry is not None
        if entry is None or entry.state is State.COMPLETED:
            return False
        return parking.due is not None or entry.state is State.UNKNOWN
