"""The janitor's duties of an engine: what a worker does on its schedule, and a sweep once."""

from worker.app.opening import Engine
from worker.engine.janitor import Duty, claim_duties, parked_duty
from worker.engine.reconciling import Reconciling
from worker.engine.reporting import Means
from worker.ledger.clock import clock


def engine_duties(engine: Engine) -> list[Duty]:
    """What is done for the operations of this engine's own handlers, and for claims of ended sessions."""
    limits, ledger = engine.settings.engine, engine.ledger
    every, hold = limits.settle_every.total_seconds(), limits.hold.total_seconds()
    return [
        *claim_duties(ledger, every),
        parked_duty(ledger.parking, engine.pipeline.take_parked, engine.routes, every=every, hold=hold),
        doubts_duty(engine, every=every),
    ]


def doubts_duty(engine: Engine, *, every: float) -> Duty:
    """Ask the reconcilers of this process's registry about entries in doubt, and report what nobody could settle."""
    ledger, limits = engine.ledger, engine.settings.engine
    means = Means(
        routes=engine.routes,
        doubts=ledger.doubts,
        claims=ledger.claims,
        parking=ledger.parking,
        publisher=engine.publisher,
        originals=engine.originals,
        letters=engine.letters,
        caller=engine.caller,
        notice=engine.notice,
    )
    grace = limits.grace.total_seconds()
    reconciling = Reconciling(means, engine.tasks, grace=grace, result_limit=limits.result_limit, clock=clock)
    return Duty("doubts", every / 5, reconciling.once)
