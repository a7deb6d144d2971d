"""What low load cannot go below: a bare consumer's delay, and two bare commits after it."""

import asyncio
import time

import uvloop
from aiokafka import AIOKafkaConsumer

from tests.bench.contenders.tuned import Tuned
from tests.bench.job import Job
from tests.bench.messages import Timed
from tests.bench.stopwatch import Stopwatch
from worker.kafka.security import client_options
from worker.settings import load_settings


class Arrivals:
    """When messages arrived, and how long their two commits took, in milliseconds."""

    def __init__(self, watch: Stopwatch, tuned: Tuned) -> None:
        self.delays: list[float] = []
        self.commits: list[float] = []
        self._watch = watch
        self._tuned = tuned

    async def commit_twice(self, timed: Timed) -> None:
        began = time.monotonic()
        await self._tuned.first(timed.id)
        await self._tuned.complete(timed.id)
        self.commits.append((time.monotonic() - began) * 1e3)
        self._watch.lap()


async def work(job: Job, watch: Stopwatch) -> Arrivals:
    settings = load_settings()
    tuned = Tuned()
    await tuned.open(settings.database.url.get_secret_value(), job.schema)
    consumer = AIOKafkaConsumer(
        job.topic,
        **client_options(settings.kafka),
        group_id=job.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    arrivals = Arrivals(watch, tuned)
    await consumer.start()
    watch.start()
    # Beside the consumer, not between two reads: a slow commit must not delay the next arrival.
    async with asyncio.TaskGroup() as committing:
        while len(arrivals.delays) < job.messages:
            fetched = await consumer.getmany(timeout_ms=200)
            arrived = time.monotonic()
            for record in (record for records in fetched.values() for record in records):
                timed = Timed.model_validate_json(record.value)
                arrivals.delays.append((arrived - timed.sent) * 1e3)
                committing.create_task(arrivals.commit_twice(timed))
    await consumer.commit()
    await consumer.stop()
    return arrivals


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    arrivals = uvloop.run(work(job, watch))
    watch.tell(messages=len(arrivals.delays), calls=0, delays_ms=arrivals.delays, commits_ms=arrivals.commits)


if __name__ == "__main__":
    main()
