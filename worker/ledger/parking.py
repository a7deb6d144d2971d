"""Parking: a record's bytes are kept in Postgres, so that its offset may move on."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from asyncpg.pgproto.pgproto import UUID

from worker.errors import ServiceUnavailable
from worker.ledger.claims import backoff
from worker.ledger.connect import Line, Lines
from worker.rules.record import Record
from worker.rules.writes import Parked, Parking, Place

Notice = Callable[..., None]


class ParkingLot:
    """The parked records. Calls do not fail while Postgres is away: they are repeated, and repeating is harmless."""

    def __init__(self, lines: Lines, queries: Mapping[str, str], notice: Notice) -> None:
        self._lines = lines
        self._queries = queries
        self._notice = notice

    async def park(self, parkings: Sequence[Parking]) -> set[Place]:
        """Park records and hold their entries; the places that come back were not parked, their entry having moved on."""
        parkings = sorted(parkings, key=lambda p: p.place)
        attempt = 0
        async with self._lines.take() as line:
            while True:
                try:
                    return await self._park(line, parkings)
                except ServiceUnavailable as error:
                    attempt += 1
                    self._notice("park_broke", error=str(error), next="parking again")
                    await asyncio.sleep(backoff(attempt))

    async def finish(self, places: Sequence[Place]) -> None:
        """Remove parked records that are finished, and let go of their entries."""
        attempt = 0
        while True:
            try:
                return await self._finish(sorted(places))
            except ServiceUnavailable as error:
                attempt += 1
                self._notice("unpark_broke", error=str(error), next="trying again")
                await asyncio.sleep(backoff(attempt))

    async def _finish(self, places: Sequence[Place]) -> None:
        async with self._lines.take() as line, line.transaction() as tx:
            rows = await tx.fetch(self._queries["unpark"], *_columns(places))
            counts = Counter(r[0] for r in rows)
            ids = sorted(counts)
            await tx.execute(self._queries["unhold"], ids, [counts[i] for i in ids])

    async def take_due(self, operations: Sequence[int], most: int, again_in: float) -> list[Parked]:
        """Parked records whose time has come, taken for a while."""
        async with self._lines.take() as line:
            rows = await line.fetch(self._queries["take_due_parked"], list(operations), most, again_in)
        return [_parked(row) for row in rows]

    async def counts(self) -> dict[str, int]:
        async with self._lines.take() as line:
            return {r[0]: r[1] for r in await line.fetch(self._queries["count_parked"])}

    async def _park(self, line: Line, parkings: Sequence[Parking]) -> set[Place]:
        again = [p for p in parkings if p.again]
        parkings = [p for p in parkings if not p.again]
        places = [p.place for p in parkings]
        with_entry = {p.place for p in parkings if p.id is not None}
        records = [p.record for p in parkings]
        ids, topics, partitions, offsets = _columns(places)
        async with line.transaction() as tx:
            if again:
                await tx.execute(self._queries["postpone"], *_columns([p.place for p in again]), [p.due for p in again])
            rows = await tx.fetch(
                self._queries["park"],
                ids,
                topics,
                partitions,
                offsets,
                [p.operation for p in parkings],
                [p.reason for p in parkings],
                [p.due for p in parkings],
                [r.timestamp for r in records],
                [r.timestamp_type for r in records],
                [r.key for r in records],
                [r.value for r in records],
                [encode_headers(r.headers) for r in records],
            )
            new = [(r[0].bytes, r[1], r[2], r[3]) for r in rows]
            held = Counter(place[0] for place in new if place in with_entry)
            order = sorted(held)
            found = await tx.fetch(self._queries["hold"], [UUID(i) for i in order], [held[i] for i in order])
            gone = held.keys() - {r[0].bytes for r in found}
            unparked = [place for place in new if place in with_entry and place[0] in gone]
            if unparked:
                await tx.execute(self._queries["unpark"], *_columns(unparked))
            return set(unparked)


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Headers as bytes that give back every name and value unchanged."""
    return orjson.dumps([[name, None if value is None else value.hex()] for name, value in headers])


def decode_headers(stored: bytes) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, None if value is None else bytes.fromhex(value)) for name, value in orjson.loads(stored))


def _columns(places: Sequence[Place]) -> tuple[list[Any], list[str], list[int], list[int]]:
    return [UUID(p[0]) for p in places], [p[1] for p in places], [p[2] for p in places], [p[3] for p in places]


def _parked(row: Any) -> Parked:
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
    return Parked(
        (row["id"].bytes, row["topic"], row["partition"], row["offset"]), row["operation"], row["reason"], record
    )
