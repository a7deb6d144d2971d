"""Windows: which part of a topic is meant, by time or by offset, and what that is on each partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from worker.errors import UsageError
from worker.rules.durations import DurationError, duration
from worker.rules.record import Record


@dataclass(frozen=True, slots=True)
class Window:
    """What is wanted of a topic. Times are milliseconds; `until` and `to_offset` are the first that are not wanted."""

    since: int | None = None
    until: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    partitions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise UsageError(f"--until ({shown(self.until)}) is not after --since ({shown(self.since)})")
        if self.from_offset is not None and self.to_offset is not None and self.to_offset <= self.from_offset:
            raise UsageError(f"--to-offset ({self.to_offset}) is not above --from-offset ({self.from_offset})")

    @property
    def open_ended(self) -> bool:
        return self.until is None and self.to_offset is None

    @property
    def timed(self) -> bool:
        return self.since is not None or self.until is not None

    def admits(self, record: Record) -> bool:
        """Whether a record's own time is inside: timestamps are in no order, so each record is asked."""
        time = record.timestamp
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)


@dataclass(frozen=True, slots=True)
class Span:
    """The part of one partition that a window covers: offsets from `start` to below `end`."""

    partition: int
    start: int
    end: int
    position: int = -1  # everything below it is finished; -1: nothing has been read
    gone: tuple[int, int] | None = None  # offsets that retention has removed, the second exclusive
    oldest: int | None = None  # the time of the first record that is left, when some are gone
    unread: bool = False  # the group has no place here: everything is its own

    @property
    def begin(self) -> int:
        return max(self.start, self.position)


@dataclass(frozen=True, slots=True)
class Extent:
    """What Kafka says about one partition at one moment."""

    first: int
    past: int
    found: int | None = None  # first offset at or after the window's beginning, by time; None: there is none
    found_at: int | None = None  # its time
    committed: int | None = None  # where the group is, when the window ends there


def span(partition: int, window: Window, extent: Extent) -> Span:
    """What a window is on one partition; its end is fixed here, whatever is written afterwards."""
    end = extent.past
    unread = False
    if window.to_offset is not None:
        end = min(end, window.to_offset)
    elif window.open_ended:
        unread = extent.committed is None
        end = min(end, extent.committed or 0)
    gone = None
    if window.from_offset is not None:
        start = max(window.from_offset, extent.first)
        if window.from_offset < extent.first:
            gone = (window.from_offset, extent.first)
    elif window.since is not None:
        start = extent.past if extent.found is None else max(extent.found, extent.first)
        # Nothing older than the window's beginning is left: what retention removed may have been inside.
        if extent.first > 0 and extent.first in (extent.past, extent.found):
            gone = (0, extent.first)
    else:
        start = extent.first
    start = min(start, end) if end > extent.first else end
    return Span(partition, start, max(start, end), gone=gone, oldest=extent.found_at if gone else None, unread=unread)


def moment(text: str, now: datetime, option: str) -> int:
    """A time in milliseconds: `now`, ISO 8601 with a zone, or how long ago (`9d`, `1h30m`)."""
    given = text.strip()
    if given.lower() == "now":
        return _ms(now)
    try:
        return _ms(now - duration(given))
    except (DurationError, OverflowError):
        pass
    try:
        time = datetime.fromisoformat(given)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no time\n  write 2026-01-31T08:00:00Z, now, or how long ago: 9d, 1h30m"
        ) from None
    if time.tzinfo is None:
        raise UsageError(f"{option} {text!r} has no zone\n  write {time.isoformat()}Z for UTC, or its offset")
    return _ms(time)


def shown(ms: int) -> str:
    """A time as people read it; one beyond the calendar as its number."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return f"{ms} ms"


def window_from(plan: Mapping[str, Any]) -> Window:
    """A window as it was stored in a job's plan."""
    names = ("since", "until", "from_offset", "to_offset")
    return Window(**{name: plan.get(name) for name in names}, partitions=tuple(plan.get("partitions") or ()))


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
