"""The handlers that the worker runs here, one kind per workload."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from tests.bench.contenders.inserting import INSERT
from tests.bench.job import Job
from tests.bench.messages import HEADER, Order, Timed, Waiting
from worker import Registry, Transaction, field, header
from worker.rules.identity import Identity


class Handling(Protocol):
    """A registry with one handler, and what that handler saw."""

    registry: Registry
    calls: int


class Placed:
    """An external handler without an effect; its key comes from a field, or from a header."""

    def __init__(self, job: Job) -> None:
        self.calls = 0
        self.registry = Registry()

        async def place(order: Order) -> None:
            self.calls += 1

        key = header(HEADER) if job.options.get("key") == "header" else field("id")
        operation = job.options.get("operation", "place")
        self.registry.handler(job.topic, scope="payments", key=key, operation=operation)(place)


class Waited:
    """An external handler that waits, and watches the order in which the messages of each line start."""

    def __init__(self, job: Job) -> None:
        self.calls = 0
        self.disorder = 0
        self.registry = Registry()
        expected = [0] * job.options["lines"]

        async def wait(order: Waiting) -> None:
            self.calls += 1
            self.disorder += order.place != expected[order.line]
            expected[order.line] += 1
            await asyncio.sleep(order.seconds)

        self.registry.handler(job.topic, scope="payments", key=field("id"))(wait)


class Recorded:
    """A transactional handler with one INSERT."""

    def __init__(self, job: Job) -> None:
        self.calls = 0
        self.registry = Registry()
        insert = INSERT.format(schema=job.schema)

        async def record(order: Order, transaction: Transaction) -> None:
            self.calls += 1
            await transaction.execute(insert, order.id, order.cents)

        self.registry.handler(job.topic, scope="jobs", key=field("id"), kind="transactional")(record)


class Arrived:
    """An external handler without an effect; how long each message took from being sent to being completed."""

    def __init__(self, job: Job) -> None:
        self.calls = 0
        self.latencies_ms: list[float] = []
        self.registry = Registry()
        self._sent: dict[bytes, float] = {}
        identity = Identity(scope="payments", operation="arrive")

        async def arrive(timed: Timed) -> None:
            self.calls += 1
            self._sent[identity.entry_id(None, timed.id.encode())] = timed.sent

        self.registry.handler(job.topic, scope="payments", key=field("id"))(arrive)

    def completed(self, ids: Iterable[bytes]) -> None:
        """Postgres has acknowledged these completions just now."""
        now = time.monotonic()
        self.latencies_ms += [(now - self._sent.pop(id_)) * 1e3 for id_ in ids]


HANDLINGS: dict[str, Callable[[Job], Handling]] = {
    "placed": Placed,
    "waited": Waited,
    "recorded": Recorded,
    "arrived": Arrived,
}
