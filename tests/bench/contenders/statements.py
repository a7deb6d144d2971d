"""The ceiling Postgres sets: the ledger's claims and completions, batch after batch, without Kafka or handlers."""

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from tests.bench.contenders.handlers import Placed
from tests.bench.job import Job
from tests.bench.stopwatch import Stopwatch
from worker.app.handlers import effective_handlers
from worker.app.opening import make_ledger
from worker.engine.routes import identity_text
from worker.ledger.ledger import PostgresLedger
from worker.rules.entries import Origin, Plan
from worker.rules.fingerprint import FORMAT
from worker.rules.results import NOTHING
from worker.rules.writes import Done
from worker.settings import load_settings

BATCH = 500
PARTITIONS = 8
CALLS = 4


@dataclass(slots=True)
class Offer:
    """What the ledger needs of a message to claim its key."""

    id: bytes
    origin: Origin
    offset: int
    fingerprint: bytes | None
    stored_tenant: bytes | None
    stored_key: bytes | None


def offers(job: Job, plan: Plan, topic: int) -> list[Offer]:
    """Made before the clock starts."""
    origins = [Origin(plan, topic, partition, FORMAT) for partition in range(PARTITIONS)]
    made = []
    for number in range(job.messages):
        key = f"{job.group}-{number:08}".encode()
        digest = hashlib.sha256(key).digest()
        origin, offset = origins[number % PARTITIONS], number // PARTITIONS
        made.append(Offer(digest[:16], origin, offset, digest, None, key))
    return made


async def drive(ledger: PostgresLedger, batches: Iterator[list[Offer]]) -> int:
    """Claim and complete one batch after another; how many keys were won."""
    won = 0
    for batch in batches:
        claimed = await ledger.claims.claim(batch)
        assert claimed.all_won, "keys that nobody has used must be won"
        await ledger.finals.complete([Done(one.id, claimed.fence, NOTHING, one.origin.plan.ttl) for one in batch])
        won += len(batch)
    return won


async def work(job: Job, watch: Stopwatch) -> int:
    settings = load_settings()
    handlers = effective_handlers(settings, Placed(job).registry)
    ledger = make_ledger(settings, handlers, lambda *_, **__: None, role="run")
    await ledger.open()
    try:
        identities = {handler.name: identity_text(handler, {}) for handler in handlers}
        operations, topics = await ledger.register(handlers, group=job.group, identities=identities)
        handler = handlers[0]
        plan = Plan(operations[handler.name], handler.kind, handler.scope.lifetime.total_seconds(), 5)
        made = offers(job, plan, topics[job.topic])
        batches = iter([made[at : at + BATCH] for at in range(0, len(made), BATCH)])
        await ledger.claims.look_up(())
        watch.start()
        won = sum(await asyncio.gather(*(drive(ledger, batches) for _ in range(CALLS))))
        watch.lap()
        return won
    finally:
        await ledger.close()


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    messages = uvloop.run(work(job, watch))
    watch.tell(messages=messages, calls=0)


if __name__ == "__main__":
    main()
