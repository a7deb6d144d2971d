"""The loop a transactional handler is measured against: BEGIN, INSERT, COMMIT per message, and no deduplication."""

import asyncio
from typing import Any

import asyncpg
import uvloop

from tests.bench.contenders import window
from tests.bench.job import Job
from tests.bench.messages import Order
from tests.bench.stopwatch import Stopwatch
from worker.settings import load_settings

TABLE = 'CREATE TABLE IF NOT EXISTS "{schema}".orders (number bigint GENERATED ALWAYS AS IDENTITY, id text, cents int)'
INSERT = 'INSERT INTO "{schema}".orders (id, cents) VALUES ($1, $2)'


async def work(job: Job, watch: Stopwatch) -> int:
    """As many connections, and messages in flight, as the worker has for transactional handlers."""
    settings = load_settings().database
    insert = INSERT.format(schema=job.schema)
    free: asyncio.Queue[asyncpg.Connection[asyncpg.Record]] = asyncio.Queue()
    for number in range(settings.transaction_connections):
        connection = await asyncpg.connect(settings.url.get_secret_value())
        if number == 0:
            await connection.execute(TABLE.format(schema=job.schema))
        free.put_nowait(connection)

    async def treat(record: Any) -> None:
        order = Order.model_validate_json(record.value)
        connection = await free.get()
        try:
            async with connection.transaction():
                await connection.execute(insert, order.id, order.cents)
        finally:
            free.put_nowait(connection)

    return await window.consume(job, watch, treat, settings.transaction_connections)


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    watch.tell(messages=uvloop.run(work(job, watch)), calls=0)


if __name__ == "__main__":
    main()
