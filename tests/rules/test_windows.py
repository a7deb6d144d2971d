"""What a window is on a partition: its end is fixed, its beginning a superset, and what is gone is named."""

from datetime import UTC, datetime

import pytest

from worker.errors import UsageError
from worker.rules.windows import Extent, Span, Window, moment, span

NOW = datetime(2026, 1, 31, 8, tzinfo=UTC)


def test_an_open_window_ends_where_the_group_is() -> None:
    assert span(0, Window(since=5), Extent(0, 100, 10, 5, committed=60)) == Span(0, 10, 60)


def test_without_a_place_of_the_group_nothing_is_meant() -> None:
    found = span(0, Window(since=5), Extent(0, 100, 10, 5))
    assert (found.start, found.end, found.unread) == (0, 0, True)


def test_a_window_with_an_end_may_pass_the_group() -> None:
    assert span(0, Window(since=5, until=9), Extent(0, 100, 10, 5)) == Span(0, 10, 100)


def test_no_record_that_late_is_an_empty_window() -> None:
    found = span(0, Window(since=5, until=9), Extent(0, 100))
    assert found.start == found.end == 100
    behind = span(0, Window(since=5), Extent(0, 100, committed=40))
    assert behind.start == behind.end == 40


def test_offsets_are_taken_as_they_are() -> None:
    assert span(0, Window(from_offset=20, to_offset=30), Extent(0, 100)) == Span(0, 20, 30)
    beyond = span(0, Window(from_offset=500, to_offset=600), Extent(0, 100))
    assert beyond.start == beyond.end == 100


def test_what_retention_removed_is_named() -> None:
    by_offset = span(0, Window(from_offset=20, to_offset=80), Extent(50, 100))
    assert (by_offset.start, by_offset.gone) == (50, (20, 50))
    by_time = span(0, Window(since=5, until=900), Extent(50, 100, 50, 7))
    assert (by_time.gone, by_time.oldest) == ((0, 50), 7)
    everything = span(0, Window(since=5, until=900), Extent(100, 100))
    assert everything.gone == (0, 100)


def test_a_window_that_begins_after_the_oldest_record_lacks_nothing() -> None:
    assert span(0, Window(since=5, until=900), Extent(50, 100, 60, 5)).gone is None
    assert span(0, Window(since=0, until=900), Extent(0, 100, 0, 5)).gone is None


def test_a_group_behind_the_log_has_nothing_to_replay() -> None:
    found = span(0, Window(since=5), Extent(50, 100, 50, 7, committed=30))
    assert found.start == found.end == 30


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", 1769846400000),
        ("1h", 1769842800000),
        ("9d", 1769068800000),
        ("2026-01-31T08:00:00Z", 1769846400000),
        ("2026-01-31T09:00:00+01:00", 1769846400000),
    ],
)
def test_times_are_read(text: str, ms: int) -> None:
    assert moment(text, NOW, "--since") == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-31T08:00:00", "-1h", "99999999999d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        moment(text, NOW, "--since")


def test_an_end_before_the_beginning_is_refused() -> None:
    with pytest.raises(UsageError, match="--until"):
        Window(since=5, until=5)
    with pytest.raises(UsageError, match="--to-offset"):
        Window(from_offset=5, to_offset=4)
