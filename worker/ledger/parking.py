"""Parking: a record's bytes are kept in Postgres, so that its offset may move on."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import orjson
from asyncpg.pgproto.pgproto import UUID

from worker.ledger.connect import Connection, Line, Lines
from worker.ledger.finals import text
from worker.ledger.portions import portions
from worker.ledger.repeating import repeat
from worker.rules.claims import State
from worker.rules.record import Record
from worker.rules.writes import Parked, Parking, Place

Notice = Callable[..., None]
T = TypeVar("T")
_CAN_RUN = (State.IN_PROGRESS, State.FAILED_RETRYABLE, State.UNKNOWN)
_IN_DOUBT = (State.UNKNOWN,)


class ParkingLot:
    """The parked records. Calls do not fail while Postgres is away: they are repeated, and repeating is harmless."""

    def __init__(self, lines: Lines, queries: Mapping[str, str], notice: Notice) -> None:
        self._lines = lines
        self._queries = queries
        self._notice = notice

    async def park(self, parkings: Sequence[Parking]) -> set[Place]:
        """Park records and hold their entries; the places that come back must be judged by their entries again.

        A record without a due time waits for its entry to leave `unknown`, so it is parked only while that is the
        state: nothing would ever wake it in another. One with a due time is parked while its entry can still run, one
        that is owed a letter or a result whatever its entry's state.
        """
        # A record that is in a batch twice, as after a rebalance, is parked and held once.
        distinct = {p.place: p for p in parkings}
        moved_on: set[Place] = set()
        ordered = [distinct[place] for place in sorted(distinct)]
        for portion in portions(ordered, [_size(parking) for parking in ordered]):
            moved_on |= await self._repeat("park_broke", partial(self._park, parkings=portion))
        return moved_on

    async def keep(self, tx: Connection, parkings: Sequence[Parking]) -> None:
        """Park records that have no entry yet in a transaction of the caller's; one that is parked stays as it is."""
        distinct = {p.place: p for p in parkings}
        await self._insert(tx, [distinct[place] for place in sorted(distinct)])

    async def under(self, topic: str, behind: int, most: int) -> list[Parked]:
        """Records parked under a topic's name, in the order of their offsets, after one of them."""
        async with self._lines.take() as line:
            rows = await line.fetch(self._queries["parked_of_topic"], topic, behind, most)
        return [read_parked(row) for row in rows]

    async def finish(self, places: Sequence[Place]) -> None:
        """Remove parked records that are finished, and let go of their entries."""
        places = sorted(places)
        await self._repeat("unpark_broke", lambda line: self._finish(line, places))

    async def take_due(
        self, operations: Sequence[int], most: int, again_in: float, *, topics: Sequence[str] = ()
    ) -> list[Parked]:
        """Parked records whose time has come, taken for a while; also those of these topics that have no operation."""
        async with self._lines.take() as line:
            rows = await line.fetch(self._queries["take_due_parked"], list(operations), most, again_in, list(topics))
        return [read_parked(row) for row in rows]

    async def counts(self) -> dict[str, int]:
        async with self._lines.take() as line:
            return {r[0]: r[1] for r in await line.fetch(self._queries["count_parked"])}

    async def _park(self, line: Line, parkings: Sequence[Parking]) -> set[Place]:
        async with line.transaction() as tx:
            await tx.execute(self._queries["go_by_id"])
            new = await self._insert(tx, [p for p in parkings if not p.again])
            waiting = [p for p in parkings if p.id is not None and (p.again or p.place in new)]
            owed = [p for p in waiting if p.owed and not p.again]
            waiting = [p for p in waiting if not p.owed]
            timed = [p for p in waiting if p.due is not None and not p.again]
            moved_on = await self._hold(tx, owed, tuple(State))
            moved_on |= await self._hold(tx, timed, _CAN_RUN)
            moved_on |= await self._hold(tx, [p for p in waiting if p.due is None], _IN_DOUBT)
            if unparked := sorted(new & moved_on):
                await tx.execute(self._queries["unpark"], *_columns(unparked))
            again = [p for p in parkings if p.again and p.place not in moved_on]
            if again:
                await tx.execute(
                    self._queries["postpone"],
                    *_columns([p.place for p in again]),
                    [p.due for p in again],
                    [p.reason for p in again],
                    [_text(p.detail) for p in again],
                )
            return moved_on

    async def _insert(self, tx: Connection, parkings: Sequence[Parking]) -> set[Place]:
        """Insert records that are not parked yet: their places."""
        if not parkings:
            return set()
        records = [p.record for p in parkings]
        rows = await tx.fetch(
            self._queries["park"],
            *_columns([p.place for p in parkings]),
            [p.operation for p in parkings],
            [p.reason for p in parkings],
            [p.due for p in parkings],
            [r.timestamp for r in records],
            [r.timestamp_type for r in records],
            [r.key for r in records],
            [r.value for r in records],
            [encode_headers(r.headers) for r in records],
            [_text(p.detail) for p in parkings],
        )
        return {(r[0].bytes, r[1], r[2], r[3]) for r in rows}

    async def _hold(self, tx: Connection, parkings: Sequence[Parking], states: Sequence[State]) -> set[Place]:
        """Hold the entries of these records; the places whose entry is in none of the states."""
        if not parkings:
            return set()
        counts = Counter(p.place[0] for p in parkings if not p.again)
        ids = sorted({p.place[0] for p in parkings})
        rows = await tx.fetch(self._queries["hold"], [UUID(i) for i in ids], [counts[i] for i in ids], states)
        held = {r[0].bytes for r in rows}
        return {p.place for p in parkings if p.place[0] not in held}

    async def _finish(self, line: Line, places: Sequence[Place]) -> None:
        async with line.transaction() as tx:
            await tx.execute(self._queries["go_by_id"])
            # The entries before what is parked for them, as whoever moves an entry and then wakes its records.
            locked = [UUID(i) for i in sorted({place[0] for place in places})]
            await tx.fetch(self._queries["hold"], locked, [0] * len(locked), tuple(State))
            counts = Counter(r[0] for r in await tx.fetch(self._queries["unpark"], *_columns(places)))
            ids = sorted(counts)
            await tx.execute(self._queries["unhold"], ids, [counts[i] for i in ids])

    async def _repeat(self, event: str, call: Callable[[Line], Awaitable[T]]) -> T:
        def broke(error: str) -> None:
            self._notice(event, error=error, next="trying again")

        return await repeat(self._lines, call, broke=broke)


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Headers as bytes that give back every name and value unchanged."""
    return orjson.dumps([[name, None if value is None else value.hex()] for name, value in headers])


def decode_headers(stored: bytes) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, None if value is None else bytes.fromhex(value)) for name, value in orjson.loads(stored))


def _text(detail: str | None) -> str | None:
    return None if detail is None else text(detail)


def _size(parking: Parking) -> int:
    return len(parking.record.value or b"")


def _columns(places: Sequence[Place]) -> tuple[list[Any], list[str], list[int], list[int]]:
    return [UUID(p[0]) for p in places], [p[1] for p in places], [p[2] for p in places], [p[3] for p in places]


def read_parked(row: Any) -> Parked:
    """A parked row with its record, byte for byte."""
    record = Record(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp=row["timestamp_ms"],
        timestamp_type=row["timestamp_type"],
        key=row["key"],
        value=row["value"],
        headers=decode_headers(row["headers"]),
    )
    place = (row["id"].bytes, row["topic"], row["partition"], row["offset"])
    return Parked(place, row["operation"], row["reason"], record, row["detail"])
