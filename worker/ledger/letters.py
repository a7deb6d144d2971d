"""Dead letters that an operator dealt with: redriven through the claim path, or discarded; each once, and audited."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from asyncpg.pgproto.pgproto import UUID

from worker.ledger.audit import Act, write_audit
from worker.ledger.connect import Connection, Line
from worker.ledger.parking import ParkingLot
from worker.rules.writes import Parking

Handled = tuple[int, int, int]  # partition, offset and timestamp of a letter
Action = Literal["redriven", "discarded"]


@dataclass(frozen=True, slots=True)
class Redrive:
    """A letter to redrive: where it lies, the record it was, and the entry whose attempts start anew, if it has one."""

    letter: Handled
    parking: Parking
    act: Act
    id: bytes | None = None
    fingerprint: bytes | None = None


class Letters:
    """What was done with the letters of one dead-letter topic."""

    def __init__(self, line: Line, queries: Mapping[str, str], topic: str) -> None:
        self._line = line
        self._queries = queries
        self.topic = topic

    async def handled(self) -> dict[Handled, str]:
        """Letters that were dealt with, and how."""
        rows = await self._line.fetch(self._queries["handled_letters"], self.topic)
        return {(r["partition"], r["offset"], r["timestamp_ms"]): r["action"] for r in rows}

    async def discard(self, letters: Mapping[Handled, Act]) -> set[Handled]:
        """Mark letters as discarded; those that nobody had dealt with before."""
        async with self._line.transaction() as tx:
            marked = await self._mark(tx, list(letters), "discarded", None)
            for letter in sorted(marked):
                await write_audit(tx, self._queries, letters[letter])
            return marked

    async def redrive(self, redrives: Sequence[Redrive], lot: ParkingLot, *, job: int) -> set[Handled]:
        """Park the records, let their entries start anew, mark the letters; all in one transaction, or nothing.

        Letters missing from the answer were dealt with by someone else meanwhile: theirs are not parked.
        """
        async with self._line.transaction() as tx:
            marked = await self._mark(tx, [r.letter for r in redrives], "redriven", job)
            mine = [r for r in redrives if r.letter in marked]
            entries = sorted({(r.id, r.fingerprint or b"") for r in mine if r.id is not None})
            ids = [UUID(id_) for id_, _ in entries]
            await tx.execute(self._queries["reset_attempts"], ids, [fingerprint or None for _, fingerprint in entries])
            await lot.keep(tx, [r.parking for r in mine])
            for redrive in mine:
                await write_audit(tx, self._queries, redrive.act)
            return marked

    async def _mark(self, tx: Connection, letters: Sequence[Handled], action: Action, job: int | None) -> set[Handled]:
        partitions, offsets, times = zip(*sorted(letters), strict=True)
        rows = await tx.fetch(self._queries["handle_letters"], self.topic, partitions, offsets, times, action, job)
        return {(r["partition"], r["offset"], r["timestamp_ms"]) for r in rows}
