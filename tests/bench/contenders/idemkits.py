"""idemkit's queue consumer on its Postgres backend, fed by an aiokafka loop with 32 messages in flight."""

from typing import Any

import uvloop
from idemkit import ConsumerAction, IdempotentConsumer, PostgresBackend, QueueConfig
from idemkit.backends.postgres import init_pg

from tests.bench.contenders import window
from tests.bench.job import Job
from tests.bench.messages import HEADER, Order
from tests.bench.stopwatch import Stopwatch
from worker.settings import load_settings

IN_FLIGHT = 32


def dedup_id(record: Any) -> str:
    """The same key as everyone's; idemkit's own preset would take the record's position."""
    return str(next(value for name, value in record.headers if name == HEADER), "utf-8")


async def work(job: Job, watch: Stopwatch) -> tuple[int, int]:
    url = load_settings().database.url.get_secret_value() + f"?search_path={job.schema}"
    await init_pg(url)
    backend = PostgresBackend.from_url(url, min_size=20, max_size=20)
    config = QueueConfig(dedup_id=dedup_id, visibility_timeout_seconds=300, receive_count=lambda _: 1)
    consumer = IdempotentConsumer(backend=backend, config=config)
    calls = 0

    @consumer.handle
    async def place(record: Any) -> None:
        nonlocal calls
        Order.model_validate_json(record.value)
        calls += 1

    async def treat(record: Any) -> None:
        result = await consumer.dispatch(record)
        assert result.action is ConsumerAction.ACK, result

    async with backend:
        # Its pool is opened at the first use: that is start-up, too.
        await backend._ensure_pool()
        return await window.consume(job, watch, treat, IN_FLIGHT), calls


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    messages, calls = uvloop.run(work(job, watch))
    watch.tell(messages=messages, calls=calls)


if __name__ == "__main__":
    main()
