"""What most write first: the claim and the completion of each message over asyncpg's pool, 32 messages at a time."""

from typing import Any

import asyncpg
import uvloop

from tests.bench.contenders import window
from tests.bench.contenders.tuned import CLAIM, COMPLETE, CONNECTIONS, IN_FLIGHT, TABLE
from tests.bench.job import Job
from tests.bench.messages import Order
from tests.bench.stopwatch import Stopwatch
from worker.settings import load_settings


async def work(job: Job, watch: Stopwatch) -> tuple[int, int]:
    url = load_settings().database.url.get_secret_value()
    claim, complete = CLAIM.format(schema=job.schema), COMPLETE.format(schema=job.schema)
    calls = 0

    async def handle(order: Order) -> None:
        nonlocal calls
        calls += 1

    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        await pool.execute(TABLE.format(schema=job.schema))

        async def treat(record: Any) -> None:
            order = Order.model_validate_json(record.value)
            if await pool.fetchval(claim, order.id) is not None:
                await handle(order)
                await pool.execute(complete, order.id, b"")

        return await window.consume(job, watch, treat, IN_FLIGHT), calls


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    messages, calls = uvloop.run(work(job, watch))
    watch.tell(messages=messages, calls=calls)


if __name__ == "__main__":
    main()
