"""What an operator decides about one entry: each act names the state it leaves, and is audited in its transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from worker.errors import WrongState
from worker.ledger.audit import Act, write_audit
from worker.ledger.connect import Connection
from worker.ledger.desk import Desk
from worker.ledger.finals import text
from worker.ledger.keys import read_claim, subject
from worker.ledger.settling import settle_entries
from worker.rules.claims import Kind, State
from worker.rules.results import Result

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
        async with self._deciding() as tx:
            row = await self._in_doubt(tx, id_, fence)
            columns = (result.status, result.content_type, result.body, result.code)
            await self._change(tx, "rule_executed", row, *columns)
            size = 0 if result.body is None else len(result.body)
            detail = f"executed, by an operator; a result of {size} bytes"
            return await self._leave_doubt(tx, row, State.COMPLETED, detail, result.body)

    async def not_executed(self, id_: bytes, *, fence: int, even_early: bool = False) -> Ruled:
        """unknown -> failed_retryable, due now; refused while the effect may still happen, unless `even_early`."""
        async with self._deciding() as tx:
            row = await self._in_doubt(tx, id_, fence)
            early = await self._early(tx, row["id"])
            if early and not even_early:
                raise WrongState(
                    f"{subject(id_)} is unknown, and its effect may still happen: {early}",
                    advice="wait until then, or add --even-though-it-may-still-run: if it does, it happens twice",
                )
            await self._change(tx, "rule_not_executed", row)
            detail = "not executed, by an operator" + (f", although it might still have run: {early}" if early else "")
            return await self._leave_doubt(tx, row, State.FAILED_RETRYABLE, detail)

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

    async def _in_doubt(self, tx: Connection, id_: bytes, fence: int | None) -> asyncpg.Record:
        row = await self._locked(tx, id_, State.UNKNOWN)
        if fence is not None and row["fence"] != fence:
            raise WrongState(
                f"{subject(id_)} is unknown with fence {row['fence']}, not {fence}: another claim is in doubt now",
                advice="look at it again, and decide about that one",
            )
        return row

    async def _locked(self, tx: Connection, id_: bytes, needed: State) -> asyncpg.Record:
        row = await tx.fetchrow(self._queries["lock_for_operator"], UUID(id_))
        if row is None:
            raise WrongState(f"there is no {subject(id_)}")
        state = State(row["state"])
        if state is not needed:
            raise WrongState(
                f"{subject(id_)} is {state.name.lower()}, not {needed.name.lower()}", advice=_ADVICE.get(state)
            )
        return row

    async def _early(self, tx: Connection, id_: Any) -> str | None:
        """Why not_executed cannot be believed yet."""
        rows = await tx.fetch(self._queries["read_doubts"], [id_])
        if not rows:
            return "nobody knows since when it is in doubt"
        return None if rows[0]["quiet"] else f"quiet only at {rows[0]['quiet_until']:%Y-%m-%d %H:%M:%S %Z}"

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

    async def _change(self, tx: Connection, name: str, row: asyncpg.Record, *arguments: Any) -> None:
        if not await tx.fetch(self._queries[name], row["id"], row["fence"], *arguments):
            raise WrongState(f"{subject(row['id'].bytes)} was decided by somebody else just now")

    async def _leave_doubt(
        self, tx: Connection, row: asyncpg.Record, new: State, detail: str, body: bytes | None = None
    ) -> Ruled:
        ids = [row["id"]]
        await tx.execute(self._queries["move_expiry"], ids, [row["operation"]])
        await tx.execute(self._queries["end_doubts"], ids)
        woken = _count(await tx.execute(self._queries["wake_parked"], ids))
        await tx.execute(self._queries["note_verdict"], row["id"], row["fence"], text(detail), body)
        await self._audit(tx, "keys resolve", row, new, f"fence {row['fence']}: {detail}")
        return Ruled(str(row["id"]), State.UNKNOWN, new, row["fence"], woken, self._dry_run)

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
