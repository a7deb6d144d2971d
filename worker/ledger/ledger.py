"""The ledger of one process: its connections, its session, and everything it may write."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from worker.errors import ServiceUnavailable
from worker.ledger.claims import Claims
from worker.ledger.connect import HOT, IN_ORDER, RARE, Lines, Watch, connector
from worker.ledger.doubts import Doubts
from worker.ledger.feeds import Feeds
from worker.ledger.fences import Fences
from worker.ledger.finals import Finals
from worker.ledger.migrate import refuse_stale_schema
from worker.ledger.operations import register, register_topics
from worker.ledger.orders import Orders
from worker.ledger.parking import ParkingLot
from worker.ledger.pruning import Pruning
from worker.ledger.queries import load_queries, named
from worker.ledger.retention import Retention
from worker.ledger.sessions import Session
from worker.ledger.settling import Settling
from worker.ledger.survey import Survey
from worker.ledger.transactions import Transactions
from worker.rules.claims import Kind
from worker.rules.handlers import Handler
from worker.settings import DatabaseSettings

Notice = Callable[..., None]
_LAST_WRITE = 2.0
_RENEWAL = 10.0


class PostgresLedger:
    """Opens and closes everything that talks to Postgres: four kinds of connections, each with settings of its own."""

    def __init__(
        self,
        settings: DatabaseSettings,
        *,
        lease: float,
        crash_cap: int,
        longest_timeout: float,
        first_probe: float,
        notice: Notice,
        role: str = "run",
        watch: Watch | None = None,
    ) -> None:
        self._settings = settings
        self._notice = notice
        self.queries = load_queries(settings.schema_name)
        queries = self.queries
        watch = None if watch is None else named(watch, queries)
        self.fences = Fences()
        # A worker that stops inside a transaction keeps rows locked; the server gives up on it when its lease is over.
        hot = connector(settings, role=role, options=HOT, idle_limit=lease)
        rare = connector(settings, role=f"{role} janitor", options=RARE, idle_limit=lease)
        # A renewal that hangs on a dead connection must leave time for another one on a fresh connection.
        soon = min(lease / 3, _RENEWAL)
        renewal = connector(settings, role=f"{role} session", options=RARE, limit=soon, answer_within=soon)
        user = connector(
            settings,
            role=f"{role} handlers",
            limit=max(longest_timeout, settings.statement_timeout.total_seconds()),
            idle_limit=max(longest_timeout, lease),
        )
        slow = connector(settings, role=f"{role} prune", options=IN_ORDER, idle_limit=lease)
        self._hot = Lines(hot, settings.hot_connections, watch)
        self._rare = Lines(rare, 2, watch)
        self._slow = Lines(slow, 1, watch)
        self._user = Lines(user, settings.transaction_connections, watch)
        self.session = Session(
            renewal, queries, lease=lease, role=role, held=self.fences.held, notice=notice, watch=watch
        )
        self.claims = Claims(self._hot, queries, self.session, self.fences, crash_cap=crash_cap, notice=notice)
        self.finals = Finals(self._hot, queries, self.fences, lease=lease, first_probe=first_probe, notice=notice)
        self.parking = ParkingLot(self._rare, queries, notice)
        self.feeds = Feeds(self._rare, queries)
        self.survey = Survey(self._rare, queries)
        self.pruning = Pruning(self._slow, queries)
        self.retention = Retention(self._slow, queries)
        self.orders = Orders(self._rare, queries)
        self.doubts = Doubts(self._rare, queries, notice)
        self.settling = Settling(self._rare, queries, self.session, first_probe=first_probe, notice=notice)
        self.transactions = Transactions(self._user, queries, self.fences)

    async def open(self) -> None:
        """Check the schema and open the session."""
        await refuse_stale_schema(self._settings)
        await self.session.open()

    async def register(
        self, handlers: Sequence[Handler], *, group: str, identities: Mapping[str, str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Numbers of operations and of topics; the connections that claims and handlers will need are opened ahead."""
        await self._hot.open(*(self.queries[name] for name in ("claim", "claim_new", "look_up", "complete")))
        if any(handler.kind is Kind.TRANSACTIONAL for handler in handlers):
            await self._user.open(self.queries["complete_one"])
        topics = {topic for handler in handlers for topic in handler.topics}
        async with self._rare.take() as line:
            operations = await register(line, self.queries, handlers, group=group, identities=identities)
            return operations, await register_topics(line, self.queries, sorted(topics))

    async def release_strays(self) -> int:
        """Release claims that a broken call committed after all, and that nobody in this process runs."""
        async with self._rare.take() as line:
            rows = await line.fetch(self.queries["open_fences"], self.session.id)
            ids = {row["fence"]: row["ids"] for row in rows}
            strays = self.fences.strays(ids)
            if not strays:
                return 0
            for fence in strays:
                async with line.transaction() as tx:
                    await tx.execute(self.queries["go_by_id"])
                    await tx.fetch(self.queries["release"], sorted(ids[fence]), [fence] * len(ids[fence]))
            await line.fetch(self.queries["forget_open_claims"], strays)
        # What has committed cannot commit again.
        self.fences.lost.difference_update(strays)
        self._notice("strays_released", claims=len(strays))
        return len(strays)

    async def ping(self) -> Any:
        """A round trip to the primary."""
        async with self._rare.take() as line:
            return await line.fetchval(self.queries["ping"])

    def line(self) -> Any:
        """A connection for rare statements, as a context manager."""
        return self._rare.take()

    async def close(self) -> None:
        """Forget finished claims, end the session, then close every connection. Bounded, whatever Postgres does."""
        with suppress(ServiceUnavailable, TimeoutError):
            await asyncio.wait_for(self.finals.tidy(), _LAST_WRITE)
        await self.session.close()
        for lines in (self._hot, self._rare, self._slow, self._user):
            await lines.close()
