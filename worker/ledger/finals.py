"""Final writes: what became of a claim. Each names the fence and the state it leaves; repeating one is harmless."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from asyncpg.pgproto.pgproto import UUID

from worker.errors import ServiceUnavailable
from worker.ledger.claims import backoff
from worker.ledger.connect import Connection, Line, Lines
from worker.ledger.fences import Fences
from worker.rules.writes import Done, Doubted, Failed, Released

Notice = Callable[..., None]
T = TypeVar("T")


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

    async def complete(self, done: Sequence[Done]) -> set[bytes]:
        """Store the results of claims we still hold; the ids that come back were decided by someone else first."""
        done = sorted(done, key=_by_id)
        arguments = _results(done)

        async def call(line: Line) -> set[bytes]:
            rows = await line.fetch(self._queries["complete"], *arguments)
            if len(rows) == len(done):
                return set()
            return {d.id for d in done} - {r[0].bytes for r in rows}

        return await self._repeat(call, done)

    async def complete_late(self, done: Sequence[Done]) -> set[bytes]:
        """Store results of claims that were settled meanwhile; the ids that come back were refused by fence.

        A refused result is kept in the entry's history: the effect may have happened twice.
        """
        done = sorted(done, key=_by_id)
        arguments = (*_results(done), [d.ttl for d in done])

        async def call(line: Line) -> set[bytes]:
            async with line.transaction() as tx:
                rows = await tx.fetch(self._queries["complete_late"], *arguments)
                stored = [r[0] for r in rows]
                await self._leave_doubt(tx, stored)
                refused = {d.id for d in done} - {i.bytes for i in stored}
                for one in done:
                    if one.id in refused:
                        await tx.execute(
                            self._queries["refuse_result"],
                            UUID(one.id),
                            one.fence,
                            one.result.status.name,
                            one.result.body,
                        )
                return refused

        return await self._repeat(call, done)

    async def fail(self, failed: Sequence[Failed]) -> set[bytes]:
        """Note that nothing was executed; the ids that come back were decided by someone else first."""
        failed = sorted(failed, key=_by_id)
        arguments = (
            [UUID(f.id) for f in failed],
            [f.fence for f in failed],
            [f.delay for f in failed],
            [f.error for f in failed],
        )

        async def call(line: Line) -> set[bytes]:
            async with line.transaction() as tx:
                changed = [r[0] for r in await tx.fetch(self._queries["fail"], *arguments)]
                await self._leave_doubt(tx, changed)
                return {f.id for f in failed} - {i.bytes for i in changed}

        return await self._repeat(call, failed)

    async def release(self, released: Sequence[Released]) -> set[bytes]:
        """Give back claims whose handler never started; counts nothing, due at once."""
        released = sorted(released, key=_by_id)

        async def call(line: Line) -> set[bytes]:
            rows = await line.fetch(
                self._queries["release"], [UUID(r.id) for r in released], [r.fence for r in released]
            )
            return {r.id for r in released} - {r[0].bytes for r in rows}

        return await self._repeat(call, released)

    async def doubt(self, doubted: Sequence[Doubted]) -> set[bytes]:
        """Note that nobody knows whether the effect happened."""
        doubted = sorted(doubted, key=_by_id)
        fences = {d.id: d.fence for d in doubted}
        arguments = ([UUID(d.id) for d in doubted], [d.fence for d in doubted], [d.error for d in doubted])

        async def call(line: Line) -> set[bytes]:
            async with line.transaction() as tx:
                rows = await tx.fetch(self._queries["doubt"], *arguments)
                written = [(r[0], r[1], fences[r[0].bytes]) for r in rows]
                await write_doubts(tx, self._queries, written, lease=self._lease, first_probe=self._first_probe)
                return fences.keys() - {r[0].bytes for r in rows}

        return await self._repeat(call, doubted)

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

    async def _leave_doubt(self, tx: Connection, ids: list[Any]) -> None:
        await tx.execute(self._queries["end_doubts"], ids)
        await tx.execute(self._queries["wake_parked"], ids)

    async def _repeat(self, call: Callable[[Line], Awaitable[T]], claims: Sequence[Any]) -> T:
        """Repeat until answered: the fence makes that harmless, and only an answer lets the offset move."""
        attempt = 0
        async with self._lines.take() as line:
            while True:
                try:
                    answer = await call(line)
                except ServiceUnavailable as error:
                    attempt += 1
                    self._notice("final_write_broke", error=str(error), next="writing it again")
                    await asyncio.sleep(backoff(attempt))
                else:
                    self._fences.closed(c.fence for c in claims)
                    return answer


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


def _by_id(claim: Done | Failed | Doubted | Released) -> bytes:
    return claim.id


def _results(done: Sequence[Done]) -> tuple[list[Any], ...]:
    results = [d.result for d in done]
    return (
        [UUID(d.id) for d in done],
        [d.fence for d in done],
        [r.status for r in results],
        [r.content_type for r in results],
        [r.body for r in results],
        [r.code for r in results],
    )
