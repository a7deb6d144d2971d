"""Orders of operators: what is paused and what is to be skipped, as workers read it and as operators write it."""

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from worker.errors import WrongState
from worker.ledger.audit import Act, write_audit
from worker.ledger.connect import Lines
from worker.ledger.desk import Desk
from worker.ledger.finals import text
from worker.ledger.rulings import By
from worker.rules.orders import Pause, Skip


class Orders:
    """The orders, for a worker."""

    def __init__(self, lines: Lines, queries: Mapping[str, str]) -> None:
        self._lines = lines
        self._queries = queries

    async def pauses(self) -> list[Pause]:
        async with self._lines.take() as line:
            rows = await line.fetch(self._queries["read_pauses"])
        return [Pause(row["what"], row["name"], row["reason"]) for row in rows]

    async def skips(self, group: str) -> list[Skip]:
        """What the group has still to skip."""
        async with self._lines.take() as line:
            rows = await line.fetch(self._queries["open_skips"], group)
        return [Skip(r["topic"], r["partition"], r["offset"], r["reason"], r["move"]) for r in rows]

    async def skipped(self, group: str, skips: Sequence[Skip]) -> None:
        """The group has committed past these."""
        columns: list[list[Any]] = [list(column) for column in zip(*(s.position for s in skips), strict=True)]
        async with self._lines.take() as line:
            await line.fetch(self._queries["finish_skips"], group, *columns)

    async def goes_on(self, group: str, skip: Skip) -> None:
        """A held partition is about to be read on."""
        async with self._lines.take() as line:
            await line.fetch(self._queries["read_feed_on"], group, skip.topic, skip.partition)


class OrderBook:
    """The orders, for an operator: each is written, and ended, together with its audit."""

    def __init__(self, desk: Desk) -> None:
        self._line = desk.line
        self._queries = desk.queries

    async def names(self) -> tuple[list[str], list[str]]:
        """Every handler, as scope/operation, and every topic the ledger knows."""
        operations = await self._line.fetch(self._queries["known_operations"])
        topics = await self._line.fetch(self._queries["known_topics"])
        return [f"{row['scope']}/{row['operation']}" for row in operations], [row["name"] for row in topics]

    async def pauses(self) -> Sequence[asyncpg.Record]:
        return await self._line.fetch(self._queries["read_pauses"])

    async def pause(self, pause: Pause, by: By) -> None:
        """Hold records back; refused while they are."""
        async with self._line.transaction() as tx:
            arguments = (pause.what, pause.name, text(by.actor), text(by.reason))
            if await tx.fetchval(self._queries["write_pause"], *arguments) is None:
                found = [row for row in await tx.fetch(self._queries["read_pauses"]) if _is(row, pause)]
                raise WrongState(f"{pause} is paused already{_told(found)}")
            await write_audit(tx, self._queries, Act(by.actor, "pause", str(pause), by.reason, "running", "paused"))

    async def resume(self, pause: Pause, by: By) -> asyncpg.Record:
        """Let records run again; refused if they do. What is given back is the pause that is over."""
        async with self._line.transaction() as tx:
            row = await tx.fetchrow(self._queries["end_pause"], pause.what, pause.name)
            if row is None:
                raise WrongState(f"{pause} is not paused: its records run")
            detail = f"paused by {row['actor']}: {row['reason']}"
            act = Act(by.actor, "resume", str(pause), by.reason, "paused", "running", detail)
            await write_audit(tx, self._queries, act)
            return row

    async def held(self, group: str, topic: str, partition: int) -> str | None:
        """Why the group does not read a partition; None if it does."""
        rows = await self._line.fetch(self._queries["held_feed"], group, topic, partition)
        return (rows[0]["held_why"] or "nobody knows why") if rows else None

    async def skip(self, group: str, skip: Skip, by: By) -> None:
        """Ask the group's workers to skip; refused if that was asked for before."""
        place = skip.position
        async with self._line.transaction() as tx:
            written = await tx.fetchval(
                self._queries["write_skip"], group, *place, text(by.actor), text(by.reason), skip.move
            )
            if written is None:
                (row,) = await tx.fetch(self._queries["read_skip"], group, *place)
                done = f"done at {row['done_at']:%Y-%m-%d %H:%M:%S %Z}" if row["done_at"] else "not done yet"
                raise WrongState(f"{skip} is to be skipped already, {done}{_told([row])}")
            about = f"partition {skip.topic}/{skip.partition}" if skip.move else f"record {skip}"
            old, new = ("held", f"read on from {skip.offset}") if skip.move else ("unfinished", "skipped")
            await write_audit(tx, self._queries, Act(by.actor, "skip", about, by.reason, old, new, f"group {group}"))


def _is(row: asyncpg.Record, pause: Pause) -> bool:
    return bool((row["what"], row["name"]) == (pause.what, pause.name))


def _told(rows: Sequence[asyncpg.Record]) -> str:
    return f", by {rows[0]['actor']}: {rows[0]['reason']}" if rows else ""
