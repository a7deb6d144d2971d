"""What low load cannot go below: a bare consumer's delay, and two bare commits after it."""

import time

import asyncpg
import uvloop
from aiokafka import AIOKafkaConsumer

from tests.bench.contenders.tuned import CLAIM, COMPLETE, TABLE
from tests.bench.job import Job
from tests.bench.messages import Timed
from tests.bench.stopwatch import Stopwatch
from worker.kafka.security import client_options
from worker.settings import load_settings


async def work(job: Job, watch: Stopwatch) -> tuple[list[float], list[float]]:
    """Delays to the arrival of each message, and how long its two commits took, in milliseconds."""
    settings = load_settings()
    connection = await asyncpg.connect(settings.database.url.get_secret_value())
    await connection.execute(TABLE.format(schema=job.schema))
    claim = await connection.prepare(CLAIM.format(schema=job.schema))
    complete = await connection.prepare(COMPLETE.format(schema=job.schema))
    consumer = AIOKafkaConsumer(
        job.topic,
        **client_options(settings.kafka),
        group_id=job.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    watch.start()
    delays: list[float] = []
    commits: list[float] = []
    while len(delays) < job.messages:
        fetched = await consumer.getmany(timeout_ms=200)
        arrived = time.monotonic()
        for record in (record for records in fetched.values() for record in records):
            timed = Timed.model_validate_json(record.value)
            delays.append((arrived - timed.sent) * 1e3)
            began = time.monotonic()
            await claim.fetchval(timed.id)
            await complete.fetchval(timed.id, b"")
            commits.append((time.monotonic() - began) * 1e3)
            watch.lap()
    await consumer.commit()
    await consumer.stop()
    await connection.close()
    return delays, commits


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    delays, commits = uvloop.run(work(job, watch))
    watch.tell(messages=len(delays), calls=0, delays_ms=delays, commits_ms=commits)


if __name__ == "__main__":
    main()
