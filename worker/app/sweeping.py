"""The janitor as a process of its own, for cron or beside the workers: `oncebox sweep`.

Without handlers it prunes, ends lapsed sessions and settles their claims. With handlers it does all that a worker's
janitor does, except that nobody feeds it new records.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from worker.app.duties import engine_duties
from worker.app.housekeeping import forget, house_duties, make_pruner
from worker.app.opening import Engine, make_ledger, open_engine
from worker.app.process import run_until_signalled
from worker.engine.janitor import Janitor, claim_duties
from worker.engine.pruning import Pruned
from worker.engine.tasks import Tasks
from worker.errors import ServiceUnavailable
from worker.ledger.ledger import PostgresLedger
from worker.observe.logs import notice
from worker.rules.registry import Registry
from worker.settings import Settings

ROLE = "sweep"
_TICK = 0.1


@dataclass(slots=True)
class Swept:
    """What one round has done."""

    pruned: list[Pruned] = field(default_factory=list)
    forgotten: dict[str, int] = field(default_factory=dict)
    sessions_ended: int = 0
    claims_settled: dict[str, int] = field(default_factory=dict)
    parked_tried: int = 0
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0, unless Kafka did not say which partitions there are: then nothing could be pruned."""
        unlisted = any(hold.feed == "all" for pruned in self.pruned for hold in pruned.holds)
        return ServiceUnavailable.exit_code if unlisted else 0


def sweep(
    settings: Settings,
    registry: Registry | None,
    *,
    once: bool,
    prune_only: bool,
    tell: Callable[[Swept], None],
) -> int:
    """Sweep once and tell what was done, or go on until told to stop; the exit code."""

    async def work(stop: asyncio.Event) -> int:
        if not once and not prune_only:
            await sweep_on(settings, registry, stop=stop)
            return 0
        swept = await sweep_once(settings, registry, stop=stop, prune_only=prune_only)
        tell(swept)
        return 1 if swept.interrupted else swept.exit_code

    return run_until_signalled(settings, work)


async def sweep_once(
    settings: Settings, registry: Registry | None, *, stop: asyncio.Event, prune_only: bool = False
) -> Swept:
    """One round in this event loop; what was done until `stop` was set counts all the same."""
    swept = Swept()
    async with _opened(settings, registry) as (ledger, engine, tasks):
        going = asyncio.ensure_future(_round(settings, ledger, engine, swept, prune_only=prune_only))
        await _first_of(going, stop, tasks)
        swept.interrupted = going.cancelled()
    return swept


async def sweep_on(settings: Settings, registry: Registry | None, *, stop: asyncio.Event) -> None:
    """Go round in this event loop until `stop` is set; raises what killed it."""
    async with _opened(settings, registry) as (ledger, engine, tasks):
        await _go_round(settings, ledger, engine, tasks, stop)


@contextlib.asynccontextmanager
async def _opened(
    settings: Settings, registry: Registry | None
) -> AsyncIterator[tuple[PostgresLedger, Engine | None, Tasks]]:
    if registry is not None:
        async with open_engine(settings, registry, notice, role=ROLE) as engine:
            engine.tasks.spawn(_tick(engine.ledger, engine.pipeline.tick), "tick")
            yield engine.ledger, engine, engine.tasks
        return
    ledger = make_ledger(settings, (), notice, role=ROLE)
    tasks = Tasks()
    await ledger.open()
    try:
        tasks.spawn(_tick(ledger, lambda: None), "tick")
        yield ledger, None, tasks
    finally:
        await tasks.close()
        await ledger.close()


async def _tick(ledger: PostgresLedger, let_pass: Callable[[], None]) -> None:
    """Say that the loop moves: the session dies with it."""
    while True:
        ledger.session.beat()
        let_pass()
        await asyncio.sleep(_TICK)


async def _round(
    settings: Settings, ledger: PostgresLedger, engine: Engine | None, swept: Swept, *, prune_only: bool
) -> None:
    """Prune at once; once the session has been steady for a lease, which gives it the right, end and settle."""
    steady = asyncio.get_running_loop().time() + settings.engine.lease.total_seconds() + 2 * _TICK
    swept.pruned = await make_pruner(settings, ledger, notice).prune_due(now=True)
    swept.forgotten = await forget(settings, ledger, now=True)
    if prune_only:
        return
    await asyncio.sleep(max(0.0, steady - asyncio.get_running_loop().time()))
    swept.sessions_ended = len(await ledger.settling.end_lapsed())
    settled: Counter[str] = Counter()
    while counts := await ledger.settling.settle():
        settled.update({state.name.lower(): n for state, n in counts.items()})
    swept.claims_settled = dict(settled)
    if engine is not None:
        await _drive(engine, swept)


async def _drive(engine: Engine, swept: Swept) -> None:
    """Every duty of the handlers once; due parked records until none is left."""
    for duty in engine_duties(engine):
        done = await duty.once()
        while duty.name == "parked" and done:
            assert isinstance(done, int)
            swept.parked_tried += done
            await _quiet(engine)
            done = await duty.once()
    await _quiet(engine)


async def _quiet(engine: Engine) -> None:
    """Wait until nothing is in hand; what cannot be finished is parked again by the pipeline itself."""
    while True:
        if not engine.pipeline.parked_in_hand and not engine.pipeline.busy:
            return
        await asyncio.sleep(_TICK / 2)


async def _go_round(
    settings: Settings, ledger: PostgresLedger, engine: Engine | None, tasks: Tasks, stop: asyncio.Event
) -> None:
    every = settings.engine.settle_every.total_seconds()
    own = claim_duties(ledger, every) if engine is None else engine_duties(engine)
    Janitor([*own, *house_duties(settings, ledger, notice)], notice).start(tasks)
    notice("sweeper_started", session=ledger.session.id, handlers=engine is not None)
    await _first_of(asyncio.ensure_future(stop.wait()), stop, tasks)
    if engine is not None:
        engine.pipeline.stop(())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_quiet(engine), settings.engine.drain.total_seconds())


async def _first_of(work: "asyncio.Future[Any]", stop: asyncio.Event, tasks: Tasks) -> None:
    """Wait for the work, a signal, or a task that died: its error is raised."""
    told = asyncio.ensure_future(stop.wait())
    waited: list[asyncio.Future[Any]] = [work, told, tasks.failed]
    try:
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
    finally:
        for future in (work, told):
            future.cancel()
        await asyncio.wait([work, told])
