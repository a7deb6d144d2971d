"""What pruning costs those who wait: `python -m tests.bench.prune` (`--help` for smaller sizes).

One worker on a ledger of many entries, messages at a steady rate, without and with a prune of its expired entries, in
turns within one run. For each message the time from its production to its completion is measured inside
the worker's process: the handler's message carries the moment it was sent, the ledger's answer ends it.
"""

import argparse
import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
from confluent_kafka import Producer
from pydantic import BaseModel

from worker import Registry, Scope
from worker.app.housekeeping import make_pruner
from worker.app.serving import serve
from worker.ledger.finals import Finals
from worker.ledger.ledger import PostgresLedger
from worker.ledger.migrate import migrate
from worker.observe.logs import configure, notice
from worker.rules.writes import Done
from worker.settings import Settings, load_settings
from worker.stack import KafkaOptions, Stack, start

PARTITIONS = 8
TTL = timedelta(days=7)
_CHUNK = 250_000


class Message(BaseModel):
    """What is sent."""

    id: str


class Latencies:
    """From produced to completed, by message; what is under way when a round ends belongs to it."""

    def __init__(self) -> None:
        self.sent: dict[bytes, float] = {}
        self.taken: list[float] = []
        self._whole = Finals.complete

        async def complete(finals: Finals, done: Sequence[Done]) -> set[bytes]:
            undecided = await self._whole(finals, done)
            now = time.perf_counter()
            self.taken += [now - self.sent.pop(one.id) for one in done if one.id in self.sent]
            return undecided

        Finals.complete = complete  # type: ignore[method-assign, assignment]

    def take(self) -> list[float]:
        taken, self.taken = sorted(self.taken), []
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="entries that stay")
    parser.add_argument("--expired", type=int, default=1_000_000, help="entries that are pruned")
    parser.add_argument("--rate", type=int, default=2000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each round without pruning")
    parser.add_argument("--rounds", type=int, default=6, help="of one with and one without: a busy machine meets both")
    parser.add_argument("--small", action="store_true", help="300,000 rows, 60,000 expired, 500 a second, 10 s")
    wanted = parser.parse_args()
    if wanted.small:
        wanted.rows, wanted.expired, wanted.rate, wanted.seconds = 300_000, 60_000, 500, 10.0
    with start(["kafka", "postgres"], say=print, kafka_options=KafkaOptions(real=True)) as stack:
        asyncio.run(_measure(stack, wanted))


async def _measure(stack: Stack, wanted: argparse.Namespace) -> None:
    assert stack.kafka is not None
    assert stack.postgres is not None
    run = secrets.token_hex(3)
    topic = f"bench-{run}"
    stack.create_topics({topic: PARTITIONS})
    settings = load_settings(
        environ={
            "KAFKA_BOOTSTRAP_SERVERS": stack.kafka.url,
            "DATABASE_URL": stack.postgres.url,
            "ONCEBOX_SCHEMA": f"bench_{run}",
            "ONCEBOX_GROUP": f"bench-{run}",
            "ONCEBOX_SAMPLE_EVERY": "1s",
            "ONCEBOX_PRUNE_EVERY": "1d",
            "ONCEBOX_HTTP_PORT": "0",
            "ONCEBOX_LOG_LEVEL": "warning",
        }
    )
    configure(settings.log)
    await migrate(settings.database)
    admin = await asyncpg.connect(stack.postgres.url)
    try:
        await _rounds(settings, admin, topic, wanted)
    finally:
        await admin.execute("SET client_min_messages = error")
        await admin.execute(f'DROP SCHEMA "{settings.database.schema_name}" CASCADE')
        await admin.close()


async def _rounds(settings: Settings, admin: Any, topic: str, wanted: argparse.Namespace) -> None:
    latencies, identities = Latencies(), Identities()
    registry = _registry(topic)
    await _register(settings, registry, identities)
    await _fill(settings, admin, wanted)
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, registry, stop=stop))
    producer = Producer({"bootstrap.servers": settings.kafka.bootstrap_servers[0], "acks": "all", "linger.ms": 1})
    flow = Flow(producer, topic, latencies, identities, wanted.rate)
    try:
        await flow.keep(5.0)
        await flow.settled()
        latencies.take()
        rounds = [await _round(settings, flow, wanted) for _ in range(wanted.rounds)]
        _tell(wanted, rounds)
    finally:
        stop.set()
        await asyncio.wait_for(serving, 60)


async def _round(settings: Settings, flow: "Flow", wanted: argparse.Namespace) -> "Round":
    """A while without pruning, then a share of the expired entries is pruned."""
    await flow.keep(wanted.seconds / wanted.rounds)
    await flow.settled()
    quiet = flow.latencies.take()
    begun = time.perf_counter()
    pruning = asyncio.create_task(_prune(settings, wanted.expired // wanted.rounds))
    while not pruning.done():
        await flow.keep(0.5)
    spent = time.perf_counter() - begun
    await flow.settled()
    return Round(quiet, flow.latencies.take(), pruning.result(), spent)


@dataclass(frozen=True)
class Round:
    """Sorted latencies without and with pruning, and what was pruned meanwhile."""

    quiet: list[float]
    busy: list[float]
    pruned: int
    seconds: float


class Identities:
    """Ids of entries by key, as the worker computes them."""

    of: Any = None


def _registry(topic: str) -> Registry:
    registry = Registry()
    registry.add(Scope("bench", ttl=TTL))

    @registry.handler(topic, scope="bench", key="id")
    async def place(message: Message) -> None: ...

    return registry


async def _register(settings: Settings, registry: Registry, identities: Identities) -> None:
    """Make the operation known before its entries are made."""
    from worker.app.opening import open_engine

    async with open_engine(settings, registry, notice, role="bench") as engine:
        identity = engine.routes[0].identity
        identities.of = lambda key: identity.entry_id(None, key)


async def _fill(settings: Settings, admin: Any, wanted: argparse.Namespace) -> None:
    schema = settings.database.schema_name
    begun = time.perf_counter()
    text = f"""INSERT INTO "{schema}".entries
        (id, fence, expires_at, operation, state, kind, format, result_status, content_type, fingerprint, key, result)
        SELECT gen_random_uuid(), 1, clock_timestamp() + $1::interval + random() * interval '1 day', 1, 2, 1, 1, 1, 1,
               decode(md5(n::text) || md5(n::text), 'hex'), ('key ' || n)::bytea, decode(repeat('ab', 100), 'hex')
          FROM generate_series(1, $2::int) n"""
    for count, expiry in ((wanted.rows, TTL), (wanted.expired, timedelta(days=-3))):
        for first in range(0, count, _CHUNK):
            await admin.execute(text, expiry, min(_CHUNK, count - first), timeout=600)
    await admin.execute(f'VACUUM (ANALYZE) "{schema}".entries', timeout=1800)
    await admin.execute("CHECKPOINT", timeout=600)
    size = await admin.fetchval("SELECT pg_size_pretty(pg_total_relation_size($1))", f"{schema}.entries")
    print(f"{wanted.rows + wanted.expired:,} entries made in {time.perf_counter() - begun:.0f} s, {size}")


class Flow:
    """Messages at a steady rate, each with a key of its own."""

    def __init__(self, producer: Any, topic: str, latencies: Latencies, identities: Identities, rate: int) -> None:
        self._producer = producer
        self._topic = topic
        self.latencies = latencies
        self._identities = identities
        self._rate = rate
        self._number = 0

    async def keep(self, seconds: float) -> None:
        begun, made = time.perf_counter(), 0
        while (passed := time.perf_counter() - begun) < seconds:
            while made < passed * self._rate:
                self._send()
                made += 1
            self._producer.poll(0)
            await asyncio.sleep(0.005)

    def _send(self) -> None:
        self._number += 1
        key = f"sent {self._number}".encode()
        self.latencies.sent[self._identities.of(key)] = time.perf_counter()
        self._producer.produce(self._topic, value=b'{"id": "%s"}' % key, key=key)

    async def settled(self) -> None:
        """Wait until everything sent is completed."""
        deadline = time.perf_counter() + 120
        while self.latencies.sent:
            assert time.perf_counter() < deadline, f"{len(self.latencies.sent)} messages are not completed"
            self._producer.poll(0)
            await asyncio.sleep(0.01)


async def _prune(settings: Settings, most: int) -> int:
    """Prune as a worker's janitor does, up to so many entries."""
    from worker.app.opening import make_ledger

    ledger = make_ledger(settings, (), notice, role="bench")
    await ledger.open()
    beating = asyncio.create_task(_beat(ledger))
    try:
        _limit(ledger, most)
        (pruned,) = await make_pruner(settings, ledger, notice).prune_due(now=True)
        assert pruned.horizon is not None, pruned.holds
        return pruned.entries
    finally:
        beating.cancel()
        await ledger.close()


def _limit(ledger: PostgresLedger, most: int) -> None:
    whole, left = ledger.pruning.expired, [most]

    async def expired(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1000
        return None if left[0] < 0 else await whole(*arguments, **named)

    ledger.pruning.expired = expired  # type: ignore[method-assign]


async def _beat(ledger: PostgresLedger) -> None:
    while True:
        ledger.session.beat()
        await asyncio.sleep(0.2)


def _tell(wanted: argparse.Namespace, rounds: Sequence[Round]) -> None:
    pruned, spent = sum(r.pruned for r in rounds), sum(r.seconds for r in rounds)
    print(f"{wanted.rows:,} rows and {wanted.expired:,} expired, {wanted.rate} messages a second, {len(rounds)} rounds")
    print(f"pruned {pruned:,} in {spent:.1f} s: {pruned / spent:,.0f} a second")
    quiet, busy = sorted(t for r in rounds for t in r.quiet), sorted(t for r in rounds for t in r.busy)
    for name, taken in (("without pruning", quiet), ("while pruning", busy)):
        p50, p99 = _at(taken, 0.5), _at(taken, 0.99)
        print(f"{name:16} {len(taken):8,} messages  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  most {_at(taken, 1):.0f} ms")
    ratios = sorted(_at(r.busy, 0.99) / _at(r.quiet, 0.99) for r in rounds)
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"p99 while pruning / p99 without: {_at(busy, 0.99) / _at(quiet, 0.99):.2f}; by rounds {shown}")


def _at(taken: Sequence[float], share: float) -> float:
    """The milliseconds below which that share lies."""
    return taken[min(len(taken) - 1, int(len(taken) * share))] * 1000


if __name__ == "__main__":
    main()
