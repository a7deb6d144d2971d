"""The worker as it is shipped, with a handler that does nothing: `python -m tests.bench.ours field|header`."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.bench.job import Job
from tests.bench.messages import HEADER, Order
from tests.bench.stopwatch import Stopwatch
from worker import Registry, field, header
from worker.app import run
from worker.engine.worker import Worker
from worker.kafka.consumer import Consumer
from worker.ledger.claims import Claims
from worker.ledger.finals import Finals
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.settings import load_settings


class Placed:
    """An external handler without an effect, that counts its calls."""

    def __init__(self, topic: str, source: str) -> None:
        self.calls = 0
        self.registry = Registry()

        async def place(order: Order) -> None:
            self.calls += 1

        key = header(HEADER) if source == "header" else field("id")
        self.registry.handler(topic, scope="payments", key=key)(place)


class Reading:
    """Starts the clock at the assignment and stops it at the ledger's last answer; a few steps per batch, no more."""

    def __init__(self, watch: Stopwatch) -> None:
        self.records = 0
        self._watch = watch
        self._whole = (Worker.lanes_assigned, Consumer.poll, Claims.claim, Finals.complete)

        def lanes_assigned(worker: Worker, lanes: Sequence[Lane]) -> None:
            watch.start()
            whole(worker, lanes)

        whole = Worker.lanes_assigned
        Worker.lanes_assigned = lanes_assigned  # type: ignore[method-assign, assignment]
        Consumer.poll = _then(Consumer.poll, self._fetched)  # type: ignore[method-assign]
        Claims.claim = _then(Claims.claim, self._answered)  # type: ignore[method-assign]
        Finals.complete = _then(Finals.complete, self._answered)  # type: ignore[method-assign]

    def restore(self) -> None:
        """Leave the adapters as they were, for whoever runs another worker in this process."""
        (
            Worker.lanes_assigned,  # type: ignore[method-assign]
            Consumer.poll,  # type: ignore[method-assign]
            Claims.claim,  # type: ignore[method-assign]
            Finals.complete,  # type: ignore[method-assign]
        ) = self._whole

    def _fetched(self, lanes: Sequence[tuple[Lane, Sequence[Record], int]]) -> None:
        self.records += sum(len(records) for _, records, _ in lanes)

    def _answered(self, _: object) -> None:
        self._watch.lap()


def _then(call: Callable[..., Awaitable[Any]], look: Callable[[Any], None]) -> Any:
    async def wrapped(*arguments: Any, **named: Any) -> Any:
        answer = await call(*arguments, **named)
        look(answer)
        return answer

    return wrapped


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    reading = Reading(watch)
    placed = Placed(job.topic, sys.argv[1])
    run(load_settings(), placed.registry, until_idle=True)
    watch.tell(messages=reading.records, calls=placed.calls)


if __name__ == "__main__":
    main()
