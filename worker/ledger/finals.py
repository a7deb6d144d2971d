"""Final writes: what became of a claim. Each names the fence and the state it leaves; repeating one is harmless."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from asyncpg.pgproto.pgproto import UUID

from worker.errors import ServiceUnavailable
from worker.ledger.claims import backoff, read_row, unless
from worker.ledger.connect import Connection, Line, Lines
from worker.ledger.fences import Fences
from worker.ledger.portions import portions
from worker.rules.claims import Status
from worker.rules.entries import Row
from worker.rules.results import ContentType, Result
from worker.rules.writes import Completion, Doubted, Failed, Released

Notice = Callable[..., None]
T = TypeVar("T")
_by_id = attrgetter("id")


class Finals:
    """The batched final writes of one process. Calls do not fail while Postgres is away: they are repeated."""

    def __init__(
        self,
        lines: Lines,
        queries: Mapping[str, str],
        fences: Fences,
        *,
        lease: float,
        first_probe: float,
        notice: Notice,
    ) -> None:
        self._lines = lines
        self._queries = queries
        self._fences = fences
        self._lease = lease
        self._first_probe = first_probe
        self._notice = notice

    async def complete(self, done: Sequence[Completion]) -> set[bytes]:
        """Store the results of claims we still hold; hand the ids that come back to `complete_late`.

        About those somebody else has decided meanwhile.
        """
        undecided: set[bytes] = set()
        for portion in _portions(done):
            undecided |= await self._complete(portion)
        return undecided

    async def _complete(self, done: Sequence[Completion]) -> set[bytes]:
        arguments = result_columns(done)
        written = await self._repeat(lambda line: line.write(self._queries["complete"], *arguments))
        if written == len(done):
            self._fences.closed([d.fence for d in done])
            return set()
        # The rows tell which are stored, also those that a try without an answer has stored.
        found = await self._repeat(lambda line: line.fetch(self._queries["look_up"], arguments[0]))
        rows = {r["id"].bytes: read_row(r) for r in found}
        undecided = {d.id for d in done if not _is_stored(d, rows.get(d.id))}
        self._fences.closed(d.fence for d in done if d.id not in undecided)
        return undecided

    async def complete_late(self, done: Sequence[Completion]) -> set[bytes]:
        """Store results of claims that were settled meanwhile; the ids that come back must be judged by their rows.

        A result refused by fence is kept in the entry's history: the effect may have happened twice. One that the row
        holds already, byte for byte, was stored by a try whose answer was lost.
        """
        refused: set[bytes] = set()
        for portion in _portions(done):
            refused |= await self._complete_late(portion)
        return refused

    async def _complete_late(self, done: Sequence[Completion]) -> set[bytes]:
        arguments = (*result_columns(done), [d.ttl for d in done])

        async def call(line: Line) -> set[bytes]:
            async with line.transaction() as tx:
                stored = [r[0] for r in await tx.fetch(self._queries["complete_late"], *arguments)]
                await leave_doubt(tx, self._queries, stored)
                found = {i.bytes for i in stored}
                return await self._refuse(tx, [d for d in done if d.id not in found])

        refused = await self._repeat(call)
        self._fences.closed(d.fence for d in done)
        return refused

    async def _refuse(self, tx: Connection, done: Sequence[Completion]) -> set[bytes]:
        """Of results not stored just now, those that the row does not hold either; all of them go to the history."""
        if not done:
            return set()
        found = await tx.fetch(self._queries["look_up"], [UUID(d.id) for d in done])
        rows = {r["id"].bytes: read_row(r) for r in found}
        refused = set()
        for one in done:
            row, result = rows.get(one.id), one.result
            if _is_stored(one, row):
                continue
            # A verdict about this very claim gave another result: the effect happened once, and completed is immutable.
            event = "result_refused" if row is None or row.fence != one.fence else "result_differs"
            await tx.execute(
                self._queries["refuse_result"], UUID(one.id), event, one.fence, result.status.name, result.body
            )
            refused.add(one.id)
        return refused

    async def fail(self, failed: Sequence[Failed]) -> set[bytes]:
        """Note that nothing was executed; the ids that come back were decided by someone else first."""
        failed = sorted(failed, key=_by_id)
        arguments = (
            [UUID(f.id) for f in failed],
            [f.fence for f in failed],
            [f.delay for f in failed],
            [text(f.error) for f in failed],
        )

        async def call(line: Line) -> set[bytes]:
            async with line.transaction() as tx:
                rows = await tx.fetch(self._queries["fail"], *arguments)
                changed = [r[0] for r in rows]
                await leave_doubt(tx, self._queries, changed)
                await tx.execute(self._queries["move_expiry"], changed, [r[1] for r in rows])
                return {f.id for f in failed} - {i.bytes for i in changed}

        undecided = await self._repeat(call)
        self._fences.closed(arguments[1])
        return undecided

    async def release(self, released: Sequence[Released]) -> set[bytes]:
        """Give back claims whose handler never started; counts nothing, due at once."""
        released = sorted(released, key=_by_id)
        arguments = [UUID(r.id) for r in released], [r.fence for r in released]

        async def call(line: Line) -> set[bytes]:
            async with line.transaction() as tx:
                rows = await tx.fetch(self._queries["release"], *arguments)
                changed = [r[0] for r in rows]
                await leave_doubt(tx, self._queries, changed)
                await tx.execute(self._queries["move_expiry"], changed, [r[1] for r in rows])
                return {r.id for r in released} - {i.bytes for i in changed}

        undecided = await self._repeat(call)
        self._fences.closed(arguments[1])
        return undecided

    async def doubt(self, doubted: Sequence[Doubted]) -> set[bytes]:
        """Note that nobody knows whether the effect happened."""
        doubted = sorted(doubted, key=_by_id)
        fences = {d.id: d.fence for d in doubted}
        arguments = ([UUID(d.id) for d in doubted], [d.fence for d in doubted], [text(d.error) for d in doubted])

        async def call(line: Line) -> set[bytes]:
            async with line.transaction() as tx:
                rows = await tx.fetch(self._queries["doubt"], *arguments)
                written = [(r[0], r[1], fences[r[0].bytes]) for r in rows]
                await write_doubts(tx, self._queries, written, lease=self._lease, first_probe=self._first_probe)
                return fences.keys() - {r[0].bytes for r in rows}

        undecided = await self._repeat(call)
        self._fences.closed(arguments[1])
        return undecided

    async def tidy(self) -> None:
        """Delete the open-claims rows of finished batches, in bulk."""
        finished = self._fences.finished()
        if not finished:
            return
        try:
            async with self._lines.take() as line:
                await line.fetch(self._queries["forget_open_claims"], finished)
        except BaseException:
            self._fences.unfinished_again(finished)
            raise

    async def _repeat(self, call: Callable[[Line], Awaitable[T]]) -> T:
        """Repeat until answered: the fence makes that harmless, and only an answer lets the offset move."""
        attempt = 0
        async with self._lines.take() as line:
            while True:
                try:
                    return await call(line)
                except ServiceUnavailable as error:
                    attempt += 1
                    self._notice("final_write_broke", error=str(error), next="writing it again")
                    await asyncio.sleep(backoff(attempt))


async def leave_doubt(tx: Connection, queries: Mapping[str, str], ids: list[Any]) -> None:
    """End the doubts of these entries and wake what is parked for them, in the transaction that moved them."""
    await tx.execute(queries["end_doubts"], ids)
    await tx.execute(queries["wake_parked"], ids)


async def write_doubts(
    tx: Connection,
    queries: Mapping[str, str],
    rows: Sequence[tuple[Any, int, int]],
    *,
    lease: float,
    first_probe: float,
) -> None:
    """Write the side of the transition to unknown that the janitor finds, in the transaction that made it."""
    if rows:
        ids, operations, fences = zip(*rows, strict=True)
        await tx.execute(queries["write_doubts"], ids, operations, fences, lease, first_probe)


def _portions(done: Sequence[Completion]) -> Iterator[Sequence[Completion]]:
    done = sorted(done, key=_by_id)
    return portions(done, [len(d.result.body or b"") for d in done])


def result_columns(done: Sequence[Completion]) -> tuple[list[Any] | None, ...]:
    """The parameters of a completion, as columns."""
    results = [d.result for d in done]
    return (
        [UUID(d.id) for d in done],
        [d.fence for d in done],
        unless([r.status for r in results], Status.OK),
        unless([r.content_type for r in results], ContentType.NONE),
        unless([r.body for r in results], None),
        unless([r.code if r.code is None else text(r.code) for r in results], None),
    )


def _is_stored(done: Completion, row: Row | None) -> bool:
    """Whether the row is completed, by this very claim and with this result."""
    return row is not None and row.fence == done.fence and row.result == as_stored(done.result)


def as_stored(result: Result) -> Result:
    return result if result.code is None else replace(result, code=text(result.code))


def text(given: str) -> str:
    """What a text column can hold: one NUL or lone surrogate in a handler's error would refuse the whole batch."""
    return given.encode(errors="replace").decode().replace("\0", "\ufffd")
