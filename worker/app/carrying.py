"""Carrying records that Kafka will not deliver again (of a file, of dead letters) into a pipeline.

Each is parked before it is claimed. If this process dies, a worker takes it up when its time has come: nothing depends
on whoever brought it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from worker.app.jobbing import Finish, Show, count_outcomes, failures
from worker.app.opening import Engine
from worker.engine.janitor import Janitor, claim_duties
from worker.engine.throttle import Throttle
from worker.engine.worker import Pace, Worker
from worker.errors import ServiceUnavailable
from worker.ledger.clock import clock
from worker.ledger.jobs import Runner
from worker.observe.logs import notice
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.rules.tally import Tally
from worker.rules.writes import Parked

_EVERY: Final = 0.5
_LOOK_EVERY: Final = 0.05
AT_ONCE: Final = 100


@dataclass(slots=True, eq=False)
class Carrier:
    """One run of such a job. To a worker it is a consumer without lanes: what it carries is in the parking lot."""

    engine: Engine
    runner: Runner
    show: Show
    letters: Tally  # dead letters that were written
    rate: float | None = None
    max_failures: int | None = None
    before: Mapping[str, int] = field(default_factory=dict)
    refused: Tally = field(default_factory=Tally)
    extra: Counter[str] = field(default_factory=Counter)
    position: int = 0  # how far the source was read and everything below is durable
    began: float = field(default_factory=time.monotonic)
    _told: asyncio.Event = field(default_factory=asyncio.Event)
    _throttle: Throttle | None = None

    def __post_init__(self) -> None:
        if self.rate is not None:
            self._throttle = Throttle(self.rate, clock)

    @property
    def counts(self) -> Counter[str]:
        """Finished records by outcome, refused and malformed ones beside them."""
        counts = count_outcomes(self.engine, self.before)
        counts.update(self.extra)
        return +counts

    @property
    def due(self) -> float:
        """When a worker may take a record that we have parked: not while we are about to."""
        return self.engine.settings.engine.hold.total_seconds() * 2

    async def turn(self) -> None:
        """Wait until one more record may run."""
        while self._throttle is not None and not self._throttle.take():
            await self._throttle.some(1.0)

    async def room(self) -> None:
        """Wait until the pipeline has few enough in hand."""
        most = self.engine.settings.engine.in_flight
        while self.engine.pipeline.parked_in_hand >= most:  # noqa: ASYNC110  nobody tells when one is finished
            await asyncio.sleep(_LOOK_EVERY)

    def bring(self, parked: Sequence[Parked]) -> None:
        for one in parked:
            self.engine.pipeline.take_parked(one)

    async def run(self, feed: Callable[[], Awaitable[None]], stop: asyncio.Event) -> Finish:
        """Run `feed` and wait for what it brought; a signal, a cancel or too many failures end it before."""
        engine, limits = self.engine, self.engine.settings.engine
        pace = Pace(1, 1, 1, limits.drain.total_seconds(), commit_every=_EVERY)
        worker = Worker(engine.pipeline, pace, beat=engine.ledger.session.beat, notice=notice)
        worker.consumer = self
        engine.tasks.spawn(worker.tick(), "tick")
        engine.tasks.spawn(worker.commit(), "progress")
        Janitor(claim_duties(engine.ledger, limits.settle_every.total_seconds()), notice).start(engine.tasks)
        feeding = asyncio.ensure_future(feed())
        try:
            return await self._until_over(feeding, stop)
        finally:
            if not feeding.done():
                feeding.cancel()
                await asyncio.wait([feeding])
            await worker.stop()
            await self.commit(closing=True)

    async def _until_over(self, feeding: "asyncio.Future[None]", stop: asyncio.Event) -> Finish:
        pipeline, failed = self.engine.pipeline, self.engine.tasks.failed
        while True:
            if failed.done():
                failed.result()
            if feeding.done():
                feeding.result()
                if not pipeline.parked_in_hand and not pipeline.busy:
                    self.show.progress(self.position, self.counts)
                    return Finish("done")
            if stop.is_set():
                return Finish("stopped", "told to stop")
            if self._told.is_set():
                return Finish("cancelled", "cancelled by an operator")
            counts = self.counts
            self.show.progress(self.position, counts)
            if self.max_failures is not None and failures(counts) > self.max_failures:
                return Finish("stopped", f"{failures(counts)} records failed: more than {self.max_failures}")
            await asyncio.sleep(_LOOK_EVERY)

    def report(self, finish: Finish, topic: str, total: int) -> dict[str, Any]:
        return {
            "job": self.runner.job,
            "topic": topic,
            "state": finish.state,
            "why": finish.why,
            "total": total,
            "done": self.position,
            "outcomes": dict(self.counts),
            "dead_letters": dict(self.letters.classes),
            "refused": dict(self.refused.classes),
            "examples": {**self.letters.examples, **self.refused.examples},
            "seconds": round(time.monotonic() - self.began, 3),
        }

    # What a worker asks of its consumer.

    @property
    def lanes(self) -> list[Lane]:
        return []

    async def poll(self, lanes: Sequence[Lane], *, most: int, wait_ms: int) -> list[tuple[Lane, Sequence[Record], int]]:
        raise NotImplementedError("nothing is read from lanes here")

    async def commit(self, *, closing: bool = False) -> None:
        """Store how far the source was read; while Postgres is away it is kept for the next time."""
        try:
            async with self.engine.ledger.line() as line:
                answer = await self.runner.progress(
                    line, {0: self.position}, self.counts, session=self.engine.ledger.session.id
                )
        except ServiceUnavailable as error:
            notice("progress_delayed", error=str(error), next="trying again")
            return
        if answer != "go on":
            self._told.set()

    async def measure(self, lanes: Sequence[Lane]) -> dict[Lane, int]:
        return {}
