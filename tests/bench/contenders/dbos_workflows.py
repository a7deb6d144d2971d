"""A dbos workflow per message, named by the message's key, started from an aiokafka loop with 32 in flight.

Not its own Kafka decorator: that one names workflows by offset, so a message that was produced twice runs twice.
"""

from typing import Any

import uvloop
from dbos import DBOS, SetWorkflowID

from tests.bench.contenders import window
from tests.bench.job import Job
from tests.bench.messages import Order
from tests.bench.stopwatch import Stopwatch
from worker.settings import load_settings

IN_FLIGHT = 32
CALLS: list[str] = []


@DBOS.workflow()
async def place(key: str, cents: int) -> None:
    CALLS.append(key)


async def treat(record: Any) -> None:
    order = Order.model_validate_json(record.value)
    with SetWorkflowID(order.id):
        await place(order.id, order.cents)


async def work(job: Job, watch: Stopwatch) -> int:
    url = load_settings().database.url.get_secret_value()
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "dbos_system_schema": job.schema,
            "sys_db_pool_size": 20,
            "log_level": "WARNING",
        }
    )
    DBOS.launch()
    try:
        return await window.consume(job, watch, treat, IN_FLIGHT)
    finally:
        DBOS.destroy()


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    messages = uvloop.run(work(job, watch))
    watch.tell(messages=messages, calls=len(CALLS))


if __name__ == "__main__":
    main()
