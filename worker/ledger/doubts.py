"""Doubts: entries whose outcome nobody knows are taken for a probe, and settled by evidence.

A verdict is one transaction: the entry is locked, then moved by a statement that names the state it leaves and the
fence, its doubt ended, its parked records woken, its expiry moved, and all of that written into its history.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import orjson
from asyncpg.pgproto.pgproto import UUID

from worker.ledger.connect import Connection, Line, Lines
from worker.ledger.finals import as_stored, leave_doubt, text
from worker.ledger.parking import read_parked
from worker.ledger.repeating import repeat
from worker.rules.claims import State
from worker.rules.doubts import Doubt, Evidence, Happened, Ruled, Ruling
from worker.rules.entries import Row
from worker.rules.results import Result

Notice = Callable[..., None]
T = TypeVar("T")


async def rule(tx: Connection, queries: Mapping[str, str], evidence: Evidence) -> Ruled:
    """Let a word about an entry decide, if it may; what it did, and where the entry stands now.

    Belongs into a transaction of its own or an operator's. The entry stays locked until that ends: evidence that is
    kept for an entry in progress is there before the entry can fall into doubt.
    """
    id_ = UUID(evidence.id)
    row = await tx.fetchrow(queries["lock_entry"], id_)
    if row is None:
        return Ruled(Ruling.ABSENT)
    state, fence = State(row["state"]), row["fence"]
    if evidence.fence not in (None, fence):
        ruled = Ruled(Ruling.REFUSED, state, fence)
    elif evidence.result is not None:
        ruled = await _executed(tx, queries, row, evidence, evidence.result)
    else:
        ruled = await _not_executed(tx, queries, row, evidence)
    if ruled.ruling is Ruling.SETTLED:
        await leave_doubt(tx, queries, [id_])
        await tx.execute(queries["move_expiry"], [id_], [row["operation"]])
    await _remember(tx, queries, evidence, ruled)
    return ruled


async def _executed(tx: Connection, queries: Mapping[str, str], row: Any, evidence: Evidence, result: Result) -> Ruled:
    match State(row["state"]):
        case State.IN_PROGRESS:
            return Ruled(Ruling.KEPT, State.IN_PROGRESS, row["fence"])
        case State.COMPLETED:
            return Ruled(Ruling.COMPLETED, State.COMPLETED, row["fence"])
    columns = (result.status, result.content_type, result.body, as_stored(result).code)
    await tx.execute(queries["settle_executed"], UUID(evidence.id), row["fence"], *columns)
    return Ruled(Ruling.SETTLED, State.COMPLETED, row["fence"])


async def _not_executed(tx: Connection, queries: Mapping[str, str], row: Any, evidence: Evidence) -> Ruled:
    state, fence = State(row["state"]), row["fence"]
    if state is State.COMPLETED:
        return Ruled(Ruling.COMPLETED, state, fence)
    if state is not State.UNKNOWN or evidence.fence is None:
        return Ruled(Ruling.REFUSED, state, fence)
    quiet = await tx.fetchrow(queries["read_doubt"], UUID(evidence.id), fence)
    asked_late = quiet is not None and evidence.asked_at is not None and evidence.asked_at >= quiet["quiet_until"]
    if not asked_late and not evidence.forced:
        return Ruled(Ruling.EARLY, state, fence, None if quiet is None else quiet["quiet_in"])
    await tx.execute(queries["settle_not_executed"], UUID(evidence.id), fence)
    return Ruled(Ruling.SETTLED, State.FAILED_RETRYABLE, fence)


async def _remember(tx: Connection, queries: Mapping[str, str], evidence: Evidence, ruled: Ruled) -> None:
    """Write the word and what it did into the history; a result that was not stored is kept there."""
    id_, result = UUID(evidence.id), evidence.result
    fence = ruled.fence if evidence.fence is None else evidence.fence
    if ruled.ruling is Ruling.KEPT and result is not None:
        detail = orjson.dumps({"status": result.status, "content_type": result.content_type, "code": result.code})
        await tx.execute(queries["write_history"], id_, "evidence", fence, text(detail.decode()), result.body)
        return
    said = describe(evidence, ruled)
    body = None if result is None or ruled.ruling is Ruling.SETTLED else result.body
    await tx.execute(queries["write_history"], id_, evidence.by, fence, text(said), body)


def describe(evidence: Evidence, ruled: Ruled) -> str:
    """A word and what it did, as the history tells it."""
    said = f"{evidence.word}: {ruled.ruling}"
    if ruled.ruling is Ruling.REFUSED and ruled.state is not None:
        said += f" (the entry is {ruled.state.name.lower()}, its fence {ruled.fence})"
    return f"{said}; {evidence.note}" if evidence.note else said


class Doubts:
    """The entries in doubt. What is written is repeated until Postgres answers: the fence makes that harmless."""

    def __init__(self, lines: Lines, queries: Mapping[str, str], notice: Notice) -> None:
        self._lines = lines
        self._queries = queries
        self._notice = notice

    async def due(self, operations: Sequence[int]) -> list[int]:
        """Which of these operations have something to ask about."""
        async with self._lines.take() as line:
            return [r[0] for r in await line.fetch(self._queries["operations_in_doubt"], list(operations))]

    async def take(self, operation: int, most: int, again_in: float) -> list[Doubt]:
        """Doubts whose time has come, nobody else's for a while, with what is kept about them."""
        async with self._lines.take() as line:
            taken = await line.fetch(self._queries["take_doubts"], operation, most, again_in)
            if not taken:
                return []
            ids = sorted(r["id"] for r in taken)
            entries = {r["id"]: r for r in await line.fetch(self._queries["read_doubtful_entries"], ids)}
            sources = [(id_, e["topic"], e["source_partition"], e["source_offset"]) for id_, e in entries.items()]
            columns = [list(column) for column in zip(*sources, strict=True)] or [[], [], [], []]
            parked = {r["id"]: r for r in await line.fetch(self._queries["read_parked_of"], *columns)}
            evidence = {r["id"]: r for r in await line.fetch(self._queries["read_evidence"], ids)}
        return [
            _doubt(row, entry, parked.get(row["id"]), evidence.get(row["id"]))
            for row in taken
            if (entry := entries.get(row["id"])) is not None and entry["fence"] == row["fence"]
        ]

    async def rule(self, evidence: Evidence) -> Ruled:
        """Let a word about an entry decide, in a transaction of its own."""

        async def call(line: Line) -> Ruled:
            async with line.transaction() as tx:
                return await rule(tx, self._queries, evidence)

        return await self._repeat(call)

    async def note(self, doubt: Doubt, said: str, *, again_in: float) -> None:
        """Record a probe that settled nothing; it is due again in so many seconds."""

        async def call(line: Line) -> None:
            async with line.transaction() as tx:
                id_ = UUID(doubt.id)
                await tx.execute(self._queries["write_history"], id_, "probe", doubt.fence, text(said), None)
                await tx.execute(self._queries["note_probe"], id_, doubt.fence, again_in)

        await self._repeat(call)

    async def put_off(self, doubt: Doubt, again_in: float) -> None:
        """Nobody was asked; due in so many seconds."""
        async with self._lines.take() as line:
            await line.fetch(self._queries["put_off_doubt"], UUID(doubt.id), doubt.fence, again_in)

    async def reported(self, doubt: Doubt, how: str) -> None:
        """The doubt's dead letter is acknowledged, or cannot be written any more: nobody is asked from now on."""

        async def call(line: Line) -> None:
            async with line.transaction() as tx:
                id_ = UUID(doubt.id)
                if await tx.fetch(self._queries["mark_reported"], id_, doubt.fence):
                    await tx.execute(self._queries["write_history"], id_, "reported", doubt.fence, text(how), None)

        await self._repeat(call)

    async def history(self, id_: bytes) -> list[Happened]:
        """What happened to an entry besides its states, oldest first."""
        async with self._lines.take() as line:
            return [Happened(*row) for row in await line.fetch(self._queries["read_history"], UUID(id_))]

    async def now(self) -> datetime:
        """The database's time."""
        async with self._lines.take() as line:
            now: datetime = await line.fetchval(self._queries["database_time"])
            return now

    async def _repeat(self, call: Callable[[Line], Awaitable[T]]) -> T:
        def broke(error: str) -> None:
            self._notice("verdict_broke", error=error, next="writing it again")

        return await repeat(self._lines, call, broke=broke)


def _doubt(row: Any, entry: Any, parked: Any, evidence: Any) -> Doubt:
    return Doubt(
        id=row["id"].bytes,
        operation=row["operation"],
        fence=row["fence"],
        probes=row["probes"],
        taken_at=row["taken_at"],
        age=row["age"],
        quiet_in=row["quiet_in"],
        fingerprint=entry["fingerprint"],
        format=entry["format"],
        attempts=entry["attempts"],
        crashes=entry["crashes"],
        key=entry["key"],
        tenant=entry["tenant"],
        topic=entry["topic"],
        partition=entry["source_partition"],
        offset=entry["source_offset"],
        parked=None if parked is None else read_parked(parked).record,
        evidence=None if evidence is None else _result(evidence),
    )


def _result(evidence: Any) -> Result:
    said = orjson.loads(evidence["detail"])
    return Row.completed(said["status"], said["content_type"], evidence["body"], said["code"])
