"""What keeps the ledger from growing for ever: pruning and retention, as duties of whoever has a ledger open."""

from collections.abc import Collection, Mapping

from worker.engine.janitor import Duty
from worker.engine.ports import Notice
from worker.engine.pruning import ListTopics, Pruner
from worker.kafka.topics import open_topics
from worker.ledger.ledger import PostgresLedger
from worker.ledger.retention import Kept
from worker.rules.horizons import FoundTopic
from worker.settings import Settings

RETENTION = "retention"


def make_pruner(settings: Settings, ledger: PostgresLedger, notice: Notice) -> Pruner:
    """A pruner on this ledger that asks Kafka which partitions there are."""
    every = settings.engine.prune_every.total_seconds()
    return Pruner(ledger.pruning, ledger.feeds, topic_lister(settings), notice, every=every)


def topic_lister(settings: Settings) -> ListTopics:
    """Lists topics as Kafka knows them at that moment."""

    async def listed(names: Collection[str]) -> Mapping[str, FoundTopic]:
        if not names:
            return {}
        async with open_topics(settings.kafka) as topics:
            return await topics.found(names)

    return listed


async def forget(settings: Settings, ledger: PostgresLedger, *, now: bool = False) -> dict[str, int]:
    """Delete what is kept no longer, if it is our turn or wanted now; how many rows of what."""
    engine = settings.engine
    if not await ledger.pruning.take(RETENTION, 0, engine.prune_every.total_seconds(), now=now):
        return {}
    kept = Kept(
        engine.keep_history.total_seconds(), engine.keep_sessions.total_seconds(), engine.keep_audit.total_seconds()
    )
    return await ledger.retention.forget(kept)


def house_duties(settings: Settings, ledger: PostgresLedger, notice: Notice) -> list[Duty]:
    """Prune and forget, each as often as the settings say in all processes together."""
    pruner = make_pruner(settings, ledger, notice)

    async def forget_due() -> None:
        if gone := await forget(settings, ledger):
            notice("rows_forgotten", **gone)

    # Asked more often than it is due: whoever comes a moment too early would else wait for a whole turn.
    every = settings.engine.prune_every.total_seconds() / 5
    return [Duty("prune", every, pruner.prune_due), Duty("retention", every, forget_due)]
