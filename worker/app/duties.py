"""The duties that need more than the ledger: entries in doubt, which are asked about and reported."""

from worker.app.opening import Engine
from worker.engine.janitor import Duty
from worker.engine.reconciling import Reconciling
from worker.engine.reporting import Means
from worker.ledger.clock import clock


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
