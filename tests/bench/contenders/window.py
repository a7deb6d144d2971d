"""What everyone writes who consumes message by message: some in flight, offsets only below the first unfinished."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.bench.job import Job
from tests.bench.stopwatch import Stopwatch
from worker.kafka.security import client_options
from worker.settings import load_settings

COMMIT_SECONDS = 0.2


@dataclass(slots=True)
class _Pending:
    """A record that was read and may be finished."""

    offset: int
    finished: bool = False


@dataclass(slots=True)
class Window:
    """Records in flight of one run; `treat` does the work for one, and returns when that is durable."""

    job: Job
    watch: Stopwatch
    treat: Callable[[Any], Awaitable[None]]
    consumer: Any
    finished: int = 0
    ready: "asyncio.Queue[tuple[Any, _Pending]]" = field(default_factory=lambda: asyncio.Queue(1000))
    pending: dict[TopicPartition, deque[_Pending]] = field(default_factory=dict)
    all_done: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        while True:
            for partition, records in (await self.consumer.getmany(timeout_ms=200, max_records=500)).items():
                line = self.pending.setdefault(partition, deque())
                for record in records:
                    one = _Pending(record.offset)
                    line.append(one)
                    await self.ready.put((record, one))

    async def work(self) -> None:
        while True:
            record, one = await self.ready.get()
            await self.treat(record)
            one.finished = True
            self.finished += 1
            if self.finished == self.job.messages:
                self.watch.lap()
                self.all_done.set()

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


async def consume(job: Job, watch: Stopwatch, treat: Callable[[Any], Awaitable[None]], in_flight: int) -> int:
    """Read the topic to its end with so many messages in flight; how many there were."""
    consumer = AIOKafkaConsumer(
        job.topic,
        **client_options(load_settings().kafka),
        group_id=job.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    window = Window(job, watch, treat, consumer)
    await consumer.start()
    watch.start()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(window.read()), group.create_task(window.commit_now_and_then())]
            tasks += [group.create_task(window.work()) for _ in range(in_flight)]
            await window.all_done.wait()
            for task in tasks:
                task.cancel()
        await window.commit()
    finally:
        await consumer.stop()
    return window.finished
