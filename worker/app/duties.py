"""The janitor's duties of an engine: what a worker does on its schedule, and a sweep once."""

from worker.app.opening import Engine
from worker.engine.janitor import Duty, claim_duties, parked_duty


def engine_duties(engine: Engine) -> list[Duty]:
    """What is done for the operations of this engine's own handlers, and for claims of ended sessions."""
    limits, ledger = engine.settings.engine, engine.ledger
    every, hold = limits.settle_every.total_seconds(), limits.hold.total_seconds()
    return [
        *claim_duties(ledger, every),
        parked_duty(ledger.parking, engine.pipeline.take_parked, engine.routes, every=every, hold=hold),
    ]
