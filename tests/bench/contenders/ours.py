"""The worker as it is shipped: `python -m tests.bench.contenders.ours placed|waited|recorded|arrived`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.contenders.handlers import HANDLINGS, Arrived, Waited
from tests.bench.job import Job
from tests.bench.profile import SampledStopwatch, as_text
from tests.bench.sampler import Sampler
from tests.bench.stopwatch import Stopwatch
from worker.app import run
from worker.engine.worker import Worker
from worker.filter.filter import Filter
from worker.kafka.consumer import Consumer
from worker.ledger.claims import Claims
from worker.ledger.finals import Finals
from worker.ledger.transactions import Transactions
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.settings import load_settings

_PATCHED = (
    (Worker, "lanes_assigned"),
    (Consumer, "poll"),
    (Claims, "claim"),
    (Finals, "complete"),
    (Transactions, "run"),
    (Filter, "look_up"),
)


class Reading:
    """Starts the clock at the assignment and stops it at the last answer of ledger or filter; little per batch."""

    def __init__(self, watch: Stopwatch, completed: Callable[[Iterable[bytes]], None] | None = None) -> None:
        self.records = 0
        self._watch = watch
        self._completed = completed
        for owner, name in _PATCHED:
            setattr(owner, name, getattr(self, f"_{name}")(getattr(owner, name)))

    def assigned(self, lanes: Sequence[Lane]) -> None:
        self._watch.start()

    def _lanes_assigned(self, whole: Callable[..., None]) -> Callable[..., None]:
        def lanes_assigned(worker: Worker, lanes: Sequence[Lane]) -> None:
            self.assigned(lanes)
            whole(worker, lanes)

        return lanes_assigned

    def _poll(self, whole: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def poll(*arguments: Any, **named: Any) -> list[tuple[Lane, Sequence[Record], int]]:
            fetched: list[tuple[Lane, Sequence[Record], int]] = await whole(*arguments, **named)
            for _, records, _ in fetched:
                self.records += len(records)
            return fetched

        return poll

    def _claim(self, whole: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def answered(*arguments: Any, **named: Any) -> Any:
            answer = await whole(*arguments, **named)
            self._watch.lap()
            return answer

        return answered

    _run = _look_up = _claim

    def _complete(self, whole: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def complete(finals: Finals, done: Sequence[Any]) -> Any:
            answer = await whole(finals, done)
            self._watch.lap()
            if self._completed is not None:
                self._completed(one.id for one in done)
            return answer

        return complete


class GatedReading(Reading):
    """Reads nothing until every process has its share of the partitions: the clock starts when the gate opens."""

    def __init__(self, watch: Stopwatch, lanes: int, gate: Path) -> None:
        super().__init__(watch)
        self._share = lanes
        self._gate = gate

    def assigned(self, lanes: Sequence[Lane]) -> None:
        if len(lanes) == self._share:
            self._watch.say_ready()

    def _poll(self, whole: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        counted = super()._poll(whole)

        async def poll(*arguments: Any, **named: Any) -> Any:
            if not self._watch.running:
                if not self._gate.exists():
                    # Until another process makes the file: nothing tells when.
                    await asyncio.sleep(0.005)
                    return []
                self._watch.start()
            return await counted(*arguments, **named)

        return poll


def main() -> None:
    job = Job.from_environment()
    sampler = Sampler() if "profile" in job.options else None
    watch = Stopwatch(job.limit) if sampler is None else SampledStopwatch(job.limit, sampler)
    handling = HANDLINGS[sys.argv[1]](job)
    arrived = handling if isinstance(handling, Arrived) else None
    if "gate" in job.options:
        reading: Reading = GatedReading(watch, job.options["lanes"], Path(job.options["gate"]))
    else:
        reading = Reading(watch, None if arrived is None else arrived.completed)
    run(load_settings(), handling.registry, until_idle=not job.options.get("resident"))
    found: dict[str, Any] = {"messages": reading.records, "calls": handling.calls}
    if arrived is not None:
        found["latencies_ms"] = arrived.latencies_ms
    if sampler is not None:
        sampler.stop()
        found["profile"] = as_text(sampler, reading.records, job.options["profile"])
    if isinstance(handling, Waited):
        found["disorder"] = handling.disorder
    watch.tell(**found)


if __name__ == "__main__":
    main()
