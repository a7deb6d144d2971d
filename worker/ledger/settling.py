"""After a death: ending lapsed sessions, and settling the claims of ended ones. Two steps, two transactions."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from worker.errors import ServiceUnavailable
from worker.ledger.connect import Connection, Lines
from worker.ledger.finals import write_doubts
from worker.ledger.sessions import Session
from worker.rules.claims import State

Notice = Callable[..., None]


class Settling:
    """Ends sessions and settles their claims. Harmless if two processes do it at once."""

    def __init__(
        self, lines: Lines, queries: Mapping[str, str], session: Session, *, first_probe: float, notice: Notice
    ) -> None:
        self._lines = lines
        self._queries = queries
        self._session = session
        self._first_probe = first_probe
        self._notice = notice

    async def end_lapsed(self) -> list[int]:
        """End sessions whose lease has lapsed, if our own has been steady for a whole lease; those that were ended."""
        async with self._lines.take() as line:
            lapsed = [row[0] for row in await line.fetch(self._queries["lapsed_sessions"])]
        ended = []
        for session in lapsed:
            try:
                async with self._lines.take() as line:
                    gone = await line.fetchval(self._queries["end_session"], session, self._session.id) is not None
            except ServiceUnavailable as error:
                self._notice("session_end_delayed", session=session, error=str(error), next="trying again later")
                continue
            if gone:
                ended.append(session)
                self._notice("session_ended", session=session, next="its claims are settled")
        return ended

    async def settle(self, most: int = 100) -> dict[State, int]:
        """Settle claims of ended sessions, one claim statement's worth per transaction; counts by new state.

        A row that someone keeps locked delays its own batch only: that transaction fails soon and is tried next time.
        """
        counts: Counter[State] = Counter()
        async with self._lines.take() as line:
            claims = [(r[0], r[1], r[2]) for r in await line.fetch(self._queries["settleable_claims"], most)]
        for fence, session, lease in claims:
            try:
                counts.update(await self._settle_one(fence, session, lease))
            except ServiceUnavailable as error:
                self._notice(
                    "settlement_delayed", fence=fence, session=session, error=str(error), next="trying again later"
                )
        if counts:
            self._notice("claims_settled", **{state.name.lower(): n for state, n in counts.items()})
        return dict(counts)

    async def _settle_one(self, fence: int, session: int, lease: float) -> list[State]:
        # The quiet time counts with the lease of the worker that may still act, not with our own.
        async with self._lines.take() as line, line.transaction() as tx:
            await tx.execute(self._queries["wait_briefly"])
            await tx.execute(self._queries["go_by_id"])
            taken = await tx.fetchrow(self._queries["take_open_claim"], fence, session)
            if taken is None:
                return []
            return await settle_entries(
                tx,
                self._queries,
                taken["ids"],
                fence,
                lease=lease,
                first_probe=self._first_probe,
            )


async def settle_entries(
    tx: Connection, queries: Mapping[str, str], ids: Sequence[Any], fence: int, *, lease: float, first_probe: float
) -> list[State]:
    """Settle the entries of a claim statement, in the transaction that took its row; their new states."""
    rows = await tx.fetch(queries["settle"], sorted(ids), fence)
    if not rows:
        return []
    doubtful = [(r["id"], r["operation"], fence) for r in rows if r["state"] == State.UNKNOWN]
    await write_doubts(tx, queries, doubtful, lease=lease, first_probe=first_probe)
    await tx.execute(queries["wake_parked"], [r["id"] for r in rows if r["state"] != State.UNKNOWN])
    await tx.execute(queries["move_expiry"], [r["id"] for r in rows], [r["operation"] for r in rows])
    return [State(r["state"]) for r in rows]
