"""What a good engineer writes in an afternoon: claim, handle, complete, message by message, 32 at a time.

Dedicated connections and prepared statements, offsets committed only below the first unfinished one.
"""

import asyncio
from typing import Any

import asyncpg
import uvloop
from asyncpg.prepared_stmt import PreparedStatement

from tests.bench.contenders import window
from tests.bench.job import Job
from tests.bench.messages import Order
from tests.bench.stopwatch import Stopwatch
from worker.settings import load_settings

IN_FLIGHT = 32
CONNECTIONS = 16

TABLE = """
CREATE TABLE IF NOT EXISTS "{schema}".processed (
  key text PRIMARY KEY, status smallint NOT NULL, result bytea, at timestamptz NOT NULL DEFAULT now()
)
"""
CLAIM = 'INSERT INTO "{schema}".processed (key, status) VALUES ($1, 1) ON CONFLICT DO NOTHING RETURNING key'
COMPLETE = 'UPDATE "{schema}".processed SET status = 2, result = $2 WHERE key = $1'

Prepared = tuple["PreparedStatement[asyncpg.Record]", "PreparedStatement[asyncpg.Record]"]


class Tuned:
    """Claims and completions over a few connections of its own."""

    def __init__(self) -> None:
        self.calls = 0
        self._free: asyncio.Queue[Prepared] = asyncio.Queue()

    async def open(self, url: str, schema: str) -> None:
        for number in range(CONNECTIONS):
            connection = await asyncpg.connect(url)
            if number == 0:
                await connection.execute(TABLE.format(schema=schema))
            claim, complete = CLAIM.format(schema=schema), COMPLETE.format(schema=schema)
            self._free.put_nowait((await connection.prepare(claim), await connection.prepare(complete)))

    async def treat(self, record: Any) -> None:
        order = Order.model_validate_json(record.value)
        if await self.first(order.id):
            await self.handle(order)
            await self.complete(order.id)

    async def handle(self, order: Order) -> None:
        self.calls += 1

    async def first(self, key: str) -> bool:
        """Claim the key; whether nobody had it."""
        claim, complete = await self._free.get()
        try:
            return await claim.fetchval(key) is not None
        finally:
            self._free.put_nowait((claim, complete))

    async def complete(self, key: str) -> None:
        """Remember that the work is done."""
        claim, complete = await self._free.get()
        try:
            await complete.fetchval(key, b"")
        finally:
            self._free.put_nowait((claim, complete))


async def work(job: Job, watch: Stopwatch) -> tuple[int, int]:
    tuned = Tuned()
    await tuned.open(load_settings().database.url.get_secret_value(), job.schema)
    return await window.consume(job, watch, tuned.treat, IN_FLIGHT), tuned.calls


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    messages, calls = uvloop.run(work(job, watch))
    watch.tell(messages=messages, calls=calls)


if __name__ == "__main__":
    main()
