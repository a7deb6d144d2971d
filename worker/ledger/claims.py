"""Claiming: absent -> in_progress, failed_retryable -> in_progress, and taking back claims whose answer was lost."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from worker.errors import ServiceUnavailable
from worker.ledger.connect import Line, Lines
from worker.ledger.fences import Fences
from worker.ledger.novelty import Novelty
from worker.ledger.sessions import Session
from worker.rules.claims import State, Status
from worker.rules.entries import Claimable, Origin, Row, Won
from worker.rules.results import ContentType, Result
from worker.rules.writes import Claimed

Notice = Callable[..., None]
_MOST_ATTEMPTS = 32_767  # what the column holds
_by_id = attrgetter("id")
_COMPLETED = State.COMPLETED.value
_STATES = {state.value: state for state in State}
_STATUSES = {status.value: status for status in Status}
_CONTENT_TYPES = {kind.value: kind for kind in ContentType}
T = TypeVar("T")


class Claims:
    """Claim statements of one process. Calls do not fail while Postgres is away: they go on until it answers."""

    def __init__(
        self,
        lines: Lines,
        queries: Mapping[str, str],
        session: Session,
        fences: Fences,
        *,
        crash_cap: int,
        notice: Notice,
    ) -> None:
        self._lines = lines
        self._queries = queries
        self._session = session
        self._fences = fences
        self._crash_cap = crash_cap
        self._notice = notice
        self._novelty = Novelty()

    async def claim(self, offers: Sequence[Claimable], *, look_first: bool = False) -> Claimed:
        """Claim every absent key; look up the others in a second statement. Keys must be distinct.

        `look_first` is cheaper when most keys are known already.

        Nothing runs on a claim that is not committed. An offer whose answer was lost is made again under a new fence;
        what the lost call may have claimed is recognised by its fence and retaken.
        """
        offers = sorted(offers, key=_by_id)
        async with self._lines.take() as line:
            attempt = 0
            while True:
                try:
                    return await self._claim_once(line, offers, look_first)
                except ServiceUnavailable as error:
                    attempt += 1
                    self._notice("claim_broke", error=str(error), next="offering the same keys again")
                    await asyncio.sleep(backoff(attempt))

    async def claim_again(self, offers: Sequence[Claimable]) -> dict[bytes, Won]:
        """Claim entries that failed provably and are due; those missing from the answer must be looked up again."""
        offers = sorted(offers, key=_by_id)
        ids = [UUID(o.id) for o in offers]
        arguments = (
            ids,
            [o.fingerprint for o in offers],
            [min(o.origin.plan.attempts_cap, _MOST_ATTEMPTS) for o in offers],
            [o.origin.plan.kind for o in offers],
            [o.origin.plan.ttl for o in offers],
            self._crash_cap,
        )
        async with self._lines.take() as line:
            try:
                won = await self._under_fence(line, "claim_again", *arguments)
            except ServiceUnavailable as error:
                # Offered again by the caller, who then meets the lost fence in the row and retakes it.
                self._notice("claim_broke", error=str(error), next="offering the same keys again")
                return {}
        if len(won) < len(offers):
            # One reason for a refusal is a row whose fence is above ours: the next try must come from a fresh block.
            # Another is that our session has ended.
            self._fences.discard()
            self._session.check()
        return won

    async def look_up(self, ids: Sequence[bytes]) -> dict[bytes, Row]:
        """What the rows say now."""
        async with self._lines.take() as line:
            attempt = 0
            while True:
                try:
                    return await self._look_up(line, [UUID(i) for i in ids])
                except ServiceUnavailable as error:
                    attempt += 1
                    self._notice("look_up_broke", error=str(error), next="asking again")
                    await asyncio.sleep(backoff(attempt))

    async def _claim_once(self, line: Line, offers: Sequence[Claimable], look_first: bool) -> Claimed:
        rows: dict[bytes, Row] = {}
        if look_first:
            rows = await self._look_up(line, [UUID(o.id) for o in offers])
        asked = [o for o in offers if o.id not in rows] if rows else offers
        claimed = _Answer(0, [])
        if asked:
            columns = ([UUID(o.id) for o in asked], *_columns(asked))
            if not rows and self._novelty.expected and (fence := await self._claim_new(line, columns)) is not None:
                self._novelty.confirmed(len(offers))
                return Claimed(fence)
            claimed = await self._call(line, "claim", *columns)
        if len(claimed.found) == len(offers):
            self._novelty.confirmed(len(offers))
            return Claimed(claimed.fence)
        try:
            return await self._with_losers(line, offers, claimed, rows)
        except BaseException:
            # The caller will not hear of what was won: a claim it does not know of must not look like one that runs.
            self._fences.lose(claimed.fence)
            raise

    async def _with_losers(
        self, line: Line, offers: Sequence[Claimable], claimed: "_Answer", rows: dict[bytes, Row]
    ) -> Claimed:
        answer = Claimed(claimed.fence, rows, all_won=False, plain={row[0].bytes for row in claimed.found})
        rest = [UUID(o.id) for o in offers if o.id not in answer.plain and o.id not in rows]
        if rest:
            rows.update(await self._look_up(line, rest))
        if not rows:
            # Offered, not won and not there: either all were pruned just now, or our session has ended.
            self._session.check()
        else:
            self._novelty.refuted()
        mine = [r for o in offers if (r := rows.get(o.id)) is not None and self._lost(r, o)]
        if mine:
            retaken = await self._under_fence(line, "retake", [UUID(r.id) for r in mine], [r.fence for r in mine])
            self._notice("claim_retaken", entries=len(retaken))
            answer.won.update(retaken)
            for id_ in retaken:
                del rows[id_]
        return answer

    def _lost(self, row: Row, offer: Claimable) -> bool:
        """Whether the row is a claim of ours that nobody runs, made for this very payload."""
        return (
            row.state is State.IN_PROGRESS
            and row.fence in self._fences.lost
            and (row.fingerprint, row.format) == (offer.fingerprint, offer.origin.format)
        )

    async def _under_fence(self, line: Line, name: str, ids: list[UUID], *arguments: Any) -> dict[bytes, Won]:
        answer = await self._call(line, name, ids, *arguments)
        return {r[0].bytes: Won(answer.fence, r[1], r[2], r[3]) for r in answer.found}

    async def _claim_new(self, line: Line, columns: Sequence[Any]) -> int | None:
        """The fence under which all were claimed; None if none was: one has an entry, or our session has ended."""
        try:
            fence, written = await self._fenced(line, line.write, "claim_new", columns, int)
        except asyncpg.UniqueViolationError:
            return None
        return fence if written else None

    async def _call(self, line: Line, name: str, *arguments: Any) -> "_Answer":
        return _Answer(*await self._fenced(line, line.fetch, name, arguments, len))

    async def _fenced(
        self,
        line: Line,
        call: Callable[..., Awaitable[T]],
        name: str,
        arguments: Sequence[Any],
        claims_in: Callable[[T], int],
    ) -> tuple[int, T]:
        """One statement under a fresh fence; a fence without an answer is remembered as lost."""
        fences = self._fences
        while fences.empty:
            asked_at = fences.now()
            fences.refill(await line.fetchval(self._queries["draw_fences"]), asked_at)
        fence = fences.take()
        fences.calling.add(fence)
        try:
            answer = await call(self._queries[name], self._session.id, fence, *arguments)
            # While it still counts as under way: the session's thread finds it as the one or the other.
            fences.opened(fence, claims_in(answer))
            return fence, answer
        except asyncpg.UniqueViolationError:
            # An answer, too: nothing was written, and nothing will be.
            raise
        except BaseException:
            fences.lost.add(fence)
            raise
        finally:
            fences.calling.discard(fence)

    async def _look_up(self, line: Line, ids: list[UUID]) -> dict[bytes, Row]:
        return {r[0].bytes: read_row(r) for r in await line.fetch(self._queries["look_up"], ids)}


@dataclass(frozen=True, slots=True)
class _Answer:
    fence: int
    found: list[asyncpg.Record]


def read_row(row: asyncpg.Record) -> Row:
    id_, state, fence, fingerprint, format_, attempts, crashes, status, kind, body, code, due_in, failed_at, expires = (
        row
    )
    result = Result(_STATUSES[status], _CONTENT_TYPES[kind or 0], body, code) if state == _COMPLETED else None
    return Row(
        id_.bytes,
        _STATES[state],
        fence,
        fingerprint,
        format_,
        attempts,
        crashes,
        result,
        due_in,
        failed_at,
        expires,
    )


def backoff(attempt: int) -> float:
    """How long to wait after that many broken calls: quick at first, never more than a second."""
    return min(1.0, 0.05 * 2.0 ** min(attempt, 10))


def _columns(offers: Sequence[Claimable]) -> tuple[list[Any] | None, ...]:
    """The parameters of a claim, as columns; what offers of one origin share is sent once."""
    number_of: dict[Origin, int] = {}
    numbers = [number_of.setdefault(o.origin, len(number_of) + 1) for o in offers]
    tenants = [o.stored_tenant for o in offers]
    origins = list(number_of)
    return (
        numbers,
        [o.offset for o in offers],
        [o.fingerprint for o in offers],
        unless(tenants, None),
        [o.stored_key for o in offers],
        [o.plan.operation for o in origins],
        [o.plan.kind for o in origins],
        [o.plan.ttl for o in origins],
        [o.topic_number for o in origins],
        [o.partition for o in origins],
        [o.format for o in origins],
    )


def unless(column: list[T], usual: T) -> list[T] | None:
    """The column, or None where every value is the usual one: unnest then fills it up with nulls."""
    return None if column.count(usual) == len(column) else column
