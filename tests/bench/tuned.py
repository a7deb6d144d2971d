"""What a good engineer writes in an afternoon: claim, handle, complete, message by message, 32 at a time.

Dedicated connections and prepared statements, offsets committed only below the first unfinished one.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition
from asyncpg.prepared_stmt import PreparedStatement

from tests.bench.job import Job
from tests.bench.messages import Order
from tests.bench.stopwatch import Stopwatch
from worker.kafka.security import client_options
from worker.settings import load_settings

IN_FLIGHT = 32
CONNECTIONS = 16
COMMIT_SECONDS = 0.2

Prepared = tuple["PreparedStatement[asyncpg.Record]", "PreparedStatement[asyncpg.Record]"]


@dataclass(slots=True)
class Pending:
    """A record that was read and may be finished."""

    offset: int
    finished: bool = False


@dataclass(slots=True)
class Consumption:
    """One run: what was read, what was done."""

    job: Job
    watch: Stopwatch
    consumer: Any
    calls: int = 0
    finished: int = 0
    free: "asyncio.Queue[Prepared]" = field(default_factory=asyncio.Queue)
    ready: "asyncio.Queue[tuple[bytes, Pending]]" = field(default_factory=lambda: asyncio.Queue(1000))
    pending: dict[TopicPartition, deque[Pending]] = field(default_factory=dict)
    all_done: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        while True:
            for partition, records in (await self.consumer.getmany(timeout_ms=200, max_records=500)).items():
                line = self.pending.setdefault(partition, deque())
                for record in records:
                    one = Pending(record.offset)
                    line.append(one)
                    await self.ready.put((record.value, one))

    async def work(self) -> None:
        while True:
            value, one = await self.ready.get()
            order = Order.model_validate_json(value)
            if await self._first(order.id):
                await self.handle(order)
                await self._complete(order.id)
            one.finished = True
            self.finished += 1
            if self.finished == self.job.messages:
                self.watch.lap()
                self.all_done.set()

    async def handle(self, order: Order) -> None:
        self.calls += 1

    async def _first(self, key: str) -> bool:
        claim, complete = await self.free.get()
        try:
            return await claim.fetchval(key) is not None
        finally:
            self.free.put_nowait((claim, complete))

    async def _complete(self, key: str) -> None:
        claim, complete = await self.free.get()
        try:
            await complete.fetchval(key, b"")
        finally:
            self.free.put_nowait((claim, complete))

    async def commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            await self.commit()

    async def commit(self) -> None:
        offsets = {}
        for partition, line in self.pending.items():
            last = None
            while line and line[0].finished:
                last = line.popleft()
            if last is not None:
                offsets[partition] = last.offset + 1
        if offsets:
            await self.consumer.commit(offsets)


async def consume(job: Job, watch: Stopwatch) -> Consumption:
    """Read the topic to its end."""
    settings = load_settings()
    consumer = AIOKafkaConsumer(
        job.topic,
        **client_options(settings.kafka),
        group_id=job.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    run = Consumption(job, watch, consumer)
    connections = [await asyncpg.connect(settings.database.url.get_secret_value()) for _ in range(CONNECTIONS)]
    for connection in connections:
        run.free.put_nowait(await _prepare(connection, job.schema))
    await consumer.start()
    watch.start()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run.read()), group.create_task(run.commit_now_and_then())]
            tasks += [group.create_task(run.work()) for _ in range(IN_FLIGHT)]
            await run.all_done.wait()
            for task in tasks:
                task.cancel()
        await run.commit()
    finally:
        await consumer.stop()
        for connection in connections:
            await connection.close()
    return run


async def _prepare(connection: "asyncpg.Connection[asyncpg.Record]", schema: str) -> Prepared:
    claim = await connection.prepare(
        f'INSERT INTO "{schema}".processed (key, status) VALUES ($1, 1) ON CONFLICT DO NOTHING RETURNING key'
    )
    complete = await connection.prepare(f'UPDATE "{schema}".processed SET status = 2, result = $2 WHERE key = $1')
    return claim, complete


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    run = uvloop.run(consume(job, watch))
    watch.tell(messages=run.finished, calls=run.calls)


if __name__ == "__main__":
    main()
