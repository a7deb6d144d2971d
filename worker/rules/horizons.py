"""Horizons: up to which time the entries of an operation may be pruned, and which feed stands in the way.

Log time never trusts the timestamps of records: a feed has come as far as the newest moment at which its log ended at
or below what it has finished since. While a group is down or behind, time stands still for what it reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Feed:
    """A partition that a group reads, as the ledger knows it."""

    group: str
    topic: str
    partition: int
    operations: tuple[int, ...]
    topic_id: bytes | None
    registered_at: datetime
    log_time: datetime | None
    sampled_at: datetime | None = None
    sample_age: float | None = None  # in seconds
    watermark: int | None = None
    end: int | None = None
    held_since: datetime | None = None
    held_why: str | None = None
    held_at: int | None = None
    go_on_at: int | None = None
    retired_at: datetime | None = None

    @property
    def name(self) -> str:
        return f"{self.group} {self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as Kafka lists it now; its id where the broker tells."""

    partitions: int
    id: bytes | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps entries from being pruned, and since when."""

    feed: str
    since: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Horizon:
    """Entries that expired before `time` may go; None: nothing may. `holds` stand in the way of later times."""

    time: datetime | None
    holds: tuple[Hold, ...] = ()


def horizon(feeds: Sequence[Feed], topics: Mapping[str, FoundTopic], newest: datetime) -> Horizon:
    """The horizon of an operation with these feeds, of which retired ones do not count; `newest` is the wall clock's.

    Nothing may go while a partition that Kafka lists has no feed or sample: its records may be older than anything.
    """
    if not feeds:
        return Horizon(None, (Hold("none", None, "no feed is registered yet: start a worker"),))
    live = [feed for feed in feeds if feed.retired_at is None]
    holds = [*_unregistered(live, topics)]
    blocked = bool(holds)
    time = newest
    for feed in live:
        why = _unsafe(feed, topics)
        if why is not None:
            blocked = True
            holds.append(Hold(feed.name, feed.log_time or feed.registered_at, why))
            continue
        assert feed.log_time is not None
        if feed.log_time < newest:
            holds.append(Hold(feed.name, feed.log_time, feed.held_why or "it is behind, or nobody reads it"))
            time = min(time, feed.log_time)
    return Horizon(None if blocked else time, tuple(holds))


def _unsafe(feed: Feed, topics: Mapping[str, FoundTopic]) -> str | None:
    found = topics.get(feed.topic)
    if found is None:
        return "Kafka has no such topic: retire the feed if it is gone for good"
    if feed.topic_id is not None and found.id is not None and feed.topic_id != found.id:
        return "the topic was created anew"
    if feed.log_time is None:
        return feed.held_why or "it was never sampled at the end of its log"
    return None


def _unregistered(live: Sequence[Feed], topics: Mapping[str, FoundTopic]) -> list[Hold]:
    known: dict[tuple[str, str], set[int]] = {}
    for feed in live:
        known.setdefault((feed.group, feed.topic), set()).add(feed.partition)
    return [
        Hold(f"{group} {topic}/{partition}", None, "the partition is new: nobody has read it yet")
        for (group, topic), partitions in known.items()
        if topic in topics
        for partition in range(topics[topic].partitions)
        if partition not in partitions
    ]


@dataclass(frozen=True, slots=True)
class GoOn:
    """Where a held partition goes on, and what of its past no longer counts."""

    position: int
    anew: bool = False  # the log is another one: nothing of it was read
    cut_to: int | None = None  # the log is shorter than it was: what comes there next was never seen


def go_on(feed: Feed, *, begin: int, end: int, topic_id: bytes | None) -> GoOn:
    """Where to go on with a held partition: at its place if the log has it, else at the nearest that skips nothing.

    A log that was made anew is read from its beginning. One that merely lost its end is read on from there; where it
    cannot be told apart, it is read from the beginning: what was done is recognised by its entries.
    """
    known = topic_id is not None and feed.topic_id is not None
    if known and topic_id != feed.topic_id:
        return GoOn(begin, anew=True)
    place = feed.held_at if feed.held_at is not None else feed.watermark
    finished = max(place or 0, feed.watermark or 0)
    if place is None or place < begin:
        return GoOn(begin)
    if finished > end:
        return GoOn(min(place, end), cut_to=end) if known else GoOn(begin, anew=True)
    return GoOn(place)
