"""Horizons: the slowest feed decides, and whatever is not known for certain holds everything."""

from datetime import UTC, datetime, timedelta
from typing import Any

from worker.rules.horizons import Feed, FoundTopic, GoOn, go_on, horizon

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
NEWEST = NOW - timedelta(hours=1)
TOPICS = {"orders": FoundTopic(2, b"a" * 16)}
LATER = NOW - timedelta(minutes=1)


def feed(partition: int = 0, **changes: Any) -> Feed:
    wanted = {"group": "g", "topic": "orders", "operations": (1,), "topic_id": b"a" * 16, "log_time": LATER}
    return Feed(**{**wanted, "partition": partition, "registered_at": NOW - timedelta(days=40), **changes})


def test_with_everything_read_the_wall_clock_decides() -> None:
    found = horizon([feed(0), feed(1)], TOPICS, NEWEST)
    assert (found.time, found.holds) == (NEWEST, ())


def test_the_slowest_feed_decides_and_is_named_with_the_moment_it_stands_at() -> None:
    nine_days_ago = NOW - timedelta(days=9)
    found = horizon([feed(0), feed(1, log_time=nine_days_ago)], TOPICS, NEWEST)
    assert found.time == nine_days_ago
    (hold,) = found.holds
    assert (hold.feed, hold.since) == ("g orders/1", nine_days_ago)


def test_feeds_of_every_group_count_and_retired_ones_do_not() -> None:
    old = NOW - timedelta(days=3)
    both = [feed(p, group=g, log_time=old if g == "other" else LATER) for g in ("g", "other") for p in (0, 1)]
    assert horizon(both, TOPICS, NEWEST).time == old
    retired = [
        feed(p, group=f.group, log_time=f.log_time, retired_at=NOW if f.group == "other" else None)
        for f in both
        for p in (f.partition,)
    ]
    assert horizon(retired, TOPICS, NEWEST).time == NEWEST
    assert horizon([feed(0, retired_at=NOW)], {}, NEWEST).time == NEWEST, "nobody reads it any more"


def test_nothing_goes_while_something_is_not_known() -> None:
    cases = {
        "no feed at all": ([], TOPICS),
        "a partition without a sample": ([feed(0), feed(1, log_time=None)], TOPICS),
        "a partition without a feed": ([feed(0)], TOPICS),
        "a topic that Kafka does not list": ([feed(0), feed(1)], {}),
        "a topic that was created anew": ([feed(0), feed(1, topic_id=b"b" * 16)], TOPICS),
    }
    for case, (feeds, topics) in cases.items():
        found = horizon(feeds, topics, NEWEST)
        assert found.time is None, case
        assert found.holds, case


def test_a_held_partition_goes_on_where_nothing_is_skipped() -> None:
    same = b"a" * 16
    held: dict[str, Any] = {"held_since": NOW, "held_why": "…"}
    assert go_on(feed(held_at=5, watermark=5, **held), begin=10, end=20, topic_id=same) == GoOn(10)
    assert go_on(feed(held_at=12, watermark=12, **held), begin=10, end=20, topic_id=same) == GoOn(12)
    assert go_on(feed(held_at=50, watermark=50, **held), begin=0, end=20, topic_id=same) == GoOn(20, cut_to=20)
    assert go_on(feed(held_at=15, watermark=50, **held), begin=0, end=20, topic_id=same) == GoOn(15, cut_to=20)
    assert go_on(feed(held_at=15, watermark=15, **held), begin=3, end=20, topic_id=b"b" * 16) == GoOn(3, anew=True)
    # Whether a log is shorter or another one cannot be told without ids: nothing of it is skipped.
    assert go_on(feed(held_at=50, topic_id=None, **held), begin=0, end=20, topic_id=same) == GoOn(0, anew=True)
