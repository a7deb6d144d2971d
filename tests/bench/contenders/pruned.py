"""The worker as shipped while expired entries are pruned in turns: what those who wait for it notice.

From time to time everything that expired would be pruned at once; here a share of it at a time, with as long a rest
before each, so that a busy machine meets both alike. The clock of each message is that of (f).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

from tests.bench.contenders.handlers import Arrived
from tests.bench.contenders.ours import Reading
from tests.bench.job import Job
from tests.bench.report.runs import percentile
from tests.bench.stopwatch import Stopwatch
from worker.app import run
from worker.app.housekeeping import make_pruner
from worker.app.opening import make_ledger
from worker.engine.pruning import Pruned
from worker.ledger.ledger import PostgresLedger
from worker.observe.logs import notice
from worker.settings import load_settings


class Turns:
    """Rests and prunes in turns, for as long as there is something to prune."""

    def __init__(self, job: Job) -> None:
        options = job.options
        self._turns: int = options["turns"]
        self._share: int = options["expired"] // self._turns
        self._rest: float = options["rest"]
        self.pruned = 0
        self.seconds = 0.0
        self.pruning = False
        self.last_pruning = 0.0  # when a prune was under way last

    async def beside(self) -> AsyncIterator[None]:
        """For a registry's lifespan."""
        turning = asyncio.create_task(self._turn())
        try:
            yield
        finally:
            turning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await turning

    async def _turn(self) -> None:
        settings = load_settings()
        ledger = make_ledger(settings, (), notice, role="bench")
        await ledger.open()
        beating = asyncio.create_task(_beat(ledger))
        try:
            pruner = make_pruner(settings, ledger, notice)
            left = _limited(ledger)
            while self._turns:
                await asyncio.sleep(self._rest)
                left[0] = self._share
                self.pruning, began = True, time.monotonic()
                (found,) = await pruner.prune_due(now=True)
                self.pruning, self.last_pruning = False, time.monotonic()
                if found.horizon is not None:
                    self._note(found, self.last_pruning - began)
        finally:
            beating.cancel()
            await ledger.close()

    def _note(self, found: Pruned, seconds: float) -> None:
        self.pruned += found.entries
        self.seconds += seconds
        self._turns -= 1


class Latencies(Arrived):
    """Which messages were under way while entries were pruned."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.turns = Turns(job)
        self.quiet_ms: list[float] = []
        self.busy_ms: list[float] = []
        self.registry.lifespan(self.turns.beside)

    def completed(self, ids: Iterable[bytes]) -> None:
        super().completed(ids)
        since = time.monotonic() - self.turns.last_pruning
        for ms in self.latencies_ms:
            busy = self.turns.pruning or ms / 1e3 > since
            (self.busy_ms if busy else self.quiet_ms).append(ms)
        self.latencies_ms.clear()


def _limited(ledger: PostgresLedger) -> list[int]:
    """Lets each prune find only so many more expired entries."""
    whole, left = ledger.pruning.expired, [0]

    async def expired(*arguments: Any, **named: Any) -> Any:
        if left[0] <= 0:
            return None
        batch = await whole(*arguments, **named)
        left[0] -= 0 if batch is None else len(batch.ids)
        return batch

    ledger.pruning.expired = expired  # type: ignore[method-assign]
    return left


async def _beat(ledger: PostgresLedger) -> None:
    # As a worker's own tick does; a session that nobody beats gives up its lease.
    while True:
        ledger.session.beat()
        await asyncio.sleep(0.2)


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    latencies = Latencies(job)
    reading = Reading(watch, latencies.completed)
    run(load_settings(), latencies.registry)
    found: dict[str, Any] = {"pruned": latencies.turns.pruned, "pruning_seconds": latencies.turns.seconds}
    for name, values in (("quiet", latencies.quiet_ms), ("busy", latencies.busy_ms)):
        found[name] = {"messages": len(values), **{f"p{n}": percentile(values or [0.0], n) for n in (50, 90, 99)}}
    watch.tell(messages=reading.records, calls=latencies.calls, **found)


if __name__ == "__main__":
    main()
