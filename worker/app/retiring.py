"""Retiring feeds: which ones, whether that is safe, and where held partitions go on."""

from collections.abc import Sequence
from dataclasses import dataclass

from worker.errors import UsageError
from worker.kafka.bounds import read_bounds
from worker.ledger.audit import Act
from worker.ledger.desk import open_desk
from worker.ledger.retiring import list_feeds, operation_names, retire
from worker.rules.horizons import Feed, GoOn, go_on
from worker.settings import Settings

# Sampled more recently than this, a feed is being read: retiring it would let go of what its backlog needs.
_ALIVE = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """A feed with the names of its operations."""

    feed: Feed
    operations: list[str]


@dataclass(frozen=True, slots=True)
class Retired:
    """A feed that was retired, and where its partition goes on if it was held."""

    feed: Feed
    goes_on: GoOn | None


async def listed(settings: Settings) -> list[Listed]:
    """Every feed there is."""
    async with open_desk(settings.database) as desk:
        names = await operation_names(desk)
        return [Listed(f, [names.get(n, str(n)) for n in f.operations]) for f in await list_feeds(desk)]


async def retire_feeds(
    settings: Settings, group: str, topic: str, *, partitions: Sequence[int], actor: str, reason: str
) -> list[Retired]:
    """Retire the feeds of a group on a topic, all or some partitions.

    A partition that is read right now is refused, unless it is held. A held one goes on at the nearest place that skips
    nothing; workers take it within seconds.
    """
    async with open_desk(settings.database) as desk:
        known = [f for f in await list_feeds(desk) if f.group == group and f.topic == topic]
        chosen = [f for f in known if f.partition in partitions] if partitions else known
        missing = set(partitions) - {f.partition for f in known}
        if missing or not chosen:
            raise UsageError(
                f"group {group!r} has no feed on {topic}"
                + (f" partition {', '.join(map(str, sorted(missing)))}" if missing else "")
                + "\n  `oncebox feeds list` shows what there is"
            )
        _refuse_alive(settings, chosen)
        held = [f for f in chosen if f.held_since is not None]
        logs = await read_bounds(settings.kafka, topic, [f.partition for f in held]) if held else {}
        going_on = {
            f.partition: go_on(f, begin=log.begin, end=log.end, topic_id=log.topic_id)
            for f in held
            if (log := logs.get(f.partition)) is not None
        }
        topic_id = next((log.topic_id for log in logs.values()), None)
        act = Act(actor, "feeds retire", "", reason)
        await retire(desk, chosen, going_on, act, topic_id=topic_id)
        return [Retired(f, going_on.get(f.partition)) for f in chosen]


def _refuse_alive(settings: Settings, feeds: Sequence[Feed]) -> None:
    patience = max(_ALIVE * settings.engine.sample_every.total_seconds(), 60.0)
    for feed in feeds:
        age = feed.sample_age
        if feed.held_since is None and age is not None and age < patience:
            raise UsageError(
                f"{feed.name} was sampled {age:.0f} s ago: somebody reads it, and may need its entries"
                f"\n  stop the group, and try again after {patience:.0f} s"
            )
