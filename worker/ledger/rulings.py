"""What an operator decides about one entry: each act names the state it leaves, and is audited in its transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from worker.errors import WrongState
from worker.ledger.audit import Act, write_audit
from worker.ledger.connect import Connection
from worker.ledger.desk import Desk
from worker.ledger.doubts import rule
from worker.ledger.keys import read_claim, subject
from worker.ledger.settling import settle_entries
from worker.rules.claims import Kind, State
from worker.rules.doubts import Evidence, Ruling
from worker.rules.results import Result, kept

_FIRST_PROBE = 10.0


@dataclass(frozen=True, slots=True)
class By:
    """Who decides, and why."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ruled:
    """What became of the entry, and how many parked records of it are tried now."""

    id: str
    old: State
    new: State
    fence: int
    woken: int
    dry_run: bool = False


class Rulings:
    """Verdicts and releases by an operator. `WrongState` says what the state is, and that nothing was changed.

    A dry run does everything and commits nothing: what it says is what would have happened.
    """

    def __init__(self, desk: Desk, by: By, *, dry_run: bool = False) -> None:
        self._line = desk.line
        self._queries = desk.queries
        self._by = by
        self._dry_run = dry_run

    async def executed(self, id_: bytes, result: Result, *, fence: int | None = None) -> Ruled:
        """unknown -> completed with this result; believed at once."""
        return await self._resolve(Evidence(id_, "resolve", result, fence, note=self._by.reason))

    async def not_executed(self, id_: bytes, *, fence: int, even_early: bool = False) -> Ruled:
        """unknown -> failed_retryable, due now; refused while the effect may still happen, unless `even_early`."""
        return await self._resolve(Evidence(id_, "resolve", None, fence, forced=even_early, note=self._by.reason))

    async def _resolve(self, evidence: Evidence) -> Ruled:
        id_ = evidence.id
        async with self._deciding() as tx:
            row = await self._locked(tx, id_, State.UNKNOWN)
            fence = row["fence"]
            asked_at = await tx.fetchval(self._queries["database_time"])
            woken = await tx.fetchval(self._queries["count_parked_of"], UUID(id_))
            result = evidence.result
            if result is not None:
                # As much as would be kept of a handler's own result: an operator's may hold what must not be stored.
                result = kept(await tx.fetchval(self._queries["kept_of_results"], row["operation"]) or "bytes", result)
            ruled = await rule(tx, self._queries, replace(evidence, result=result, asked_at=asked_at))
            if ruled.ruling is Ruling.REFUSED:
                raise WrongState(
                    f"{subject(id_)} is unknown with fence {fence}, not {evidence.fence}",
                    advice="another claim is in doubt now: look at it again, and decide about that one",
                )
            if ruled.ruling is Ruling.EARLY:
                left = "nobody knows for how long" if ruled.quiet_in is None else f"for {ruled.quiet_in:.0f} s more"
                raise WrongState(
                    f"{subject(id_)} is unknown, and its effect may still happen, {left}",
                    advice="wait until then, or add --even-though-it-may-still-run: if it does, it happens twice",
                )
            assert ruled.ruling is Ruling.SETTLED
            assert ruled.state is not None
            forced = ", before the quiet time" if evidence.forced else ""
            await self._audit(tx, "keys resolve", row, ruled.state, f"fence {fence}: {evidence.word}{forced}")
            return Ruled(str(UUID(id_)), State.UNKNOWN, ruled.state, fence, woken, self._dry_run)

    async def release(self, id_: bytes, *, even_external: bool = False) -> Ruled:
        """in_progress -> failed_retryable, due now, counting nothing; refused while the claim's session lives.

        The whole claim statement is settled with it: its row must go, or a worker that comes back could carry it over
        and start what is released here.
        """
        async with self._deciding() as tx:
            await tx.execute(self._queries["go_by_id"])
            # The claim before the entry, as when it is settled: in the other order the two could wait for each other.
            fence = await tx.fetchval(self._queries["read_fence"], UUID(id_))
            claim = await tx.fetchrow(self._queries["lock_claim"], fence)
            row = await self._locked(tx, id_, State.IN_PROGRESS)
            if row["fence"] != fence:
                raise WrongState(f"{subject(id_)} was claimed again just now, with fence {row['fence']}")
            lease = await self._lease_of_ended(tx, id_, claim)
            if row["kind"] == Kind.EXTERNAL and not even_external:
                raise WrongState(
                    f"{subject(id_)} is in_progress and external: its handler may have run before its session ended",
                    advice="a worker settles it soon (it becomes unknown), then resolve it; or add"
                    " --even-though-it-may-have-run: if it did, the effect happens twice",
                )
            if not await tx.fetch(self._queries["release"], [row["id"]], [fence]):
                raise WrongState(f"{subject(id_)} was decided by somebody else just now")
            if claim is not None:
                await tx.fetch(self._queries["forget_open_claims"], [fence])
                others = [other for other in claim["ids"] if other != row["id"]]
                await settle_entries(tx, self._queries, others, fence, lease=lease, first_probe=_FIRST_PROBE)
            woken = _count(await tx.execute(self._queries["wake_parked"], [row["id"]]))
            await self._audit(tx, "keys release", row, State.FAILED_RETRYABLE, f"fence {fence}")
            return Ruled(str(row["id"]), State.IN_PROGRESS, State.FAILED_RETRYABLE, fence, woken, self._dry_run)

    @asynccontextmanager
    async def _deciding(self) -> AsyncIterator[Connection]:
        async with self._line.transaction() as tx:
            if not self._dry_run:
                yield tx
                return
            undone = tx.transaction()
            await undone.start()
            yield tx
            await undone.rollback()

    async def _locked(self, tx: Connection, id_: bytes, needed: State) -> asyncpg.Record:
        row = await tx.fetchrow(self._queries["lock_entry"], UUID(id_))
        if row is None:
            raise WrongState(f"there is no {subject(id_)}")
        state = State(row["state"])
        if state is not needed:
            raise WrongState(
                f"{subject(id_)} is {state.name.lower()}, not {needed.name.lower()}", advice=_ADVICE.get(state)
            )
        return row

    async def _lease_of_ended(self, tx: Connection, id_: bytes, claim: asyncpg.Record | None) -> float:
        if claim is None:
            # Nobody holds the claim, so nobody will ever settle it.
            return 0.0
        session = await tx.fetchrow(self._queries["session_lease"], claim["session"])
        if session is not None and not session["ended"]:
            rows = await tx.fetch(self._queries["read_claims"], [claim["fence"]])
            raise WrongState(
                f"{subject(id_)} is in_progress, and its session {read_claim(rows[0])}",
                advice="stop that process; when its lease has lapsed, a worker or `oncebox sweep` ends the session",
            )
        return 0.0 if session is None else float(session["lease"])

    async def _audit(self, tx: Connection, action: str, row: asyncpg.Record, new: State, detail: str) -> None:
        by, old = self._by, State(row["state"])
        about = subject(row["id"].bytes)
        act = Act(by.actor, action, about, by.reason, old.name.lower(), new.name.lower(), detail)
        await write_audit(tx, self._queries, act)


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])


_ADVICE = {
    State.IN_PROGRESS: "its handler runs, or its worker died: `oncebox keys show` tells which session has it",
    State.COMPLETED: "a completed entry never changes",
    State.FAILED_RETRYABLE: "it runs again when it is due and its record comes, by itself",
    State.UNKNOWN: "`oncebox keys resolve` says what became of it",
}
