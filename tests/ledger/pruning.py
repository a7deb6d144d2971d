"""A pruner on a real ledger, with feeds that stand where a test wants them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.ledger.conftest import Notices, Schema
from tests.shifting import let_time_pass
from worker.engine.pruning import Pruned, Pruner
from worker.errors import ServiceUnavailable
from worker.ledger.ledger import PostgresLedger
from worker.rules.horizons import FoundTopic
from worker.rules.lanes import Lane, Progress

TTL = timedelta(days=7)


@dataclass
class Kafka:
    """What Kafka would list; None: it does not answer."""

    topics: dict[str, FoundTopic] | None = field(default_factory=lambda: {"orders": FoundTopic(1)})

    async def listed(self, names: Collection[str]) -> Mapping[str, FoundTopic]:
        if self.topics is None:
            raise ServiceUnavailable("kafka", "Kafka did not answer")
        return {name: found for name, found in self.topics.items() if name in names}


@dataclass
class House:
    """One operation with one feed, and whoever prunes it."""

    schema: Schema
    ledger: PostgresLedger
    notices: Notices
    operation: int
    kafka: Kafka = field(default_factory=Kafka)

    @classmethod
    async def build(
        cls, schema: Schema, ledger: PostgresLedger, notices: Notices, audit_ttl: timedelta | None = None
    ) -> "House":
        operation = await schema.value(
            "INSERT INTO oncebox.operations (scope, operation, kind, identity, ttl, quiet, audit_ttl)"
            " VALUES ('webhooks', 'take', 1, 'v1', $1, interval '1 minute', $2) RETURNING id",
            TTL,
            audit_ttl,
        )
        house = cls(schema, ledger, notices, operation)
        await ledger.feeds.register("g", "orders", [0], [operation])
        return house

    async def sample(self, end: int, watermark: int, *, group: str = "g", partition: int = 0) -> datetime:
        moment = await self.ledger.feeds.moment()
        lane = Lane("orders", partition, watermark)
        await self.ledger.feeds.sample(group, moment, [Progress(lane, end, watermark)])
        return moment

    async def entries(self, count: int, *, expired: timedelta, state: int = 2, held: int = 0, key: str = "k") -> None:
        """So many entries that expired so long ago."""
        status = 1 if state == 2 else None
        due = "clock_timestamp()" if state == 3 else "NULL"
        await self.schema.execute(
            "INSERT INTO oncebox.entries (id, fence, expires_at, operation, state, kind, format, result_status, held,"
            f" result, key, due_at) SELECT gen_random_uuid(), n, clock_timestamp() - $1::interval, $2, $3, 1, 1, $4,"
            f" $5, 'the result', ($6 || n)::bytea, {due} FROM generate_series(1, $7::int) n",
            expired,
            self.operation,
            state,
            status,
            held,
            key,
            count,
        )

    async def keys(self) -> list[str]:
        rows = await self.schema.fetch("SELECT encode(key, 'escape') FROM oncebox.entries ORDER BY 1")
        return [row[0] for row in rows]

    async def prune(self, ledger: PostgresLedger | None = None, **options: Any) -> Pruned:
        (pruned,) = await self.pruner(ledger, **options).prune_due(now=True)
        return pruned

    def pruner(self, ledger: PostgresLedger | None = None, *, every: float = 60.0, pause: float = 0.0) -> Pruner:
        ledger = ledger or self.ledger
        return Pruner(ledger.pruning, ledger.feeds, self.kafka.listed, self.notices, every=every, pause=pause)

    async def let_pass(self, passed: timedelta) -> None:
        await let_time_pass(self.schema.admin, self.schema.name, passed)
