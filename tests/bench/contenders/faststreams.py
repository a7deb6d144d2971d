"""FastStream with a claim and a completion per message, as its users write it: `… faststreams fast|careful`.

fast: 16 workers and the default policy, which commits in the background, work done or not.
careful: acknowledged after the work; FastStream then runs at most one message per partition at a time.
"""

import asyncio
import sys

import asyncpg
import uvloop
from faststream import AckPolicy
from faststream.kafka import KafkaBroker

from tests.bench.contenders.tuned import CLAIM, COMPLETE, TABLE
from tests.bench.job import Job
from tests.bench.messages import Order
from tests.bench.stopwatch import Stopwatch
from worker.settings import load_settings

WORKERS = {"fast": 16, "careful": 8}
POLICIES = {"fast": AckPolicy.ACK_FIRST, "careful": AckPolicy.NACK_ON_ERROR}


async def work(job: Job, watch: Stopwatch, way: str) -> tuple[int, int]:
    settings = load_settings()
    pool = await asyncpg.create_pool(settings.database.url.get_secret_value(), min_size=16, max_size=16)
    await pool.execute(TABLE.format(schema=job.schema))
    claim, complete = CLAIM.format(schema=job.schema), COMPLETE.format(schema=job.schema)
    broker = KafkaBroker(settings.kafka.bootstrap_servers, logger=None)
    messages = calls = 0
    all_done = asyncio.Event()

    @broker.subscriber(
        job.topic,
        group_id=job.group,
        auto_offset_reset="earliest",
        max_workers=WORKERS[way],
        ack_policy=POLICIES[way],
    )
    async def place(order: Order) -> None:
        nonlocal messages, calls
        watch.start()
        if await pool.fetchval(claim, order.id) is not None:
            calls += 1
            await pool.execute(complete, order.id, b"")
        messages += 1
        if messages == job.messages:
            watch.lap()
            all_done.set()

    async with pool, broker:
        await broker.start()
        await all_done.wait()
    return messages, calls


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    messages, calls = uvloop.run(work(job, watch, sys.argv[1]))
    watch.tell(messages=messages, calls=calls)


if __name__ == "__main__":
    main()
