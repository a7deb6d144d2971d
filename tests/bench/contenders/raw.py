"""The floor: fetch 500, parse, commit, and remember nothing."""

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer

from tests.bench.job import Job
from tests.bench.stopwatch import Stopwatch
from worker.kafka.security import client_options
from worker.settings import load_settings


async def consume(job: Job, watch: Stopwatch) -> int:
    """Read the topic to its end; how many records there were."""
    consumer = AIOKafkaConsumer(
        job.topic,
        **client_options(load_settings().kafka),
        group_id=job.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    watch.start()
    try:
        seen = 0
        while seen < job.messages:
            fetched = await consumer.getmany(timeout_ms=200, max_records=500)
            if not fetched:
                continue
            for records in fetched.values():
                for record in records:
                    orjson.loads(record.value)
                seen += len(records)
            await consumer.commit()
            watch.lap()
        return seen
    finally:
        await consumer.stop()


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    watch.tell(messages=uvloop.run(consume(job, watch)), calls=0)


if __name__ == "__main__":
    main()
