"""Virtual time: seconds that pass only when something waits for them."""

from datetime import UTC, datetime, timedelta

from worker.rules.durations import duration

_START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Seconds, and the same as a date. Calling it gives the seconds; it never goes back and is never zero."""

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self.seconds = 1.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, length: str | float | timedelta) -> None:
        """Let time pass at once. Inside a box use `await box.advance(…)`: what falls due on the way must run."""
        self.seconds += duration(length).total_seconds()

    def date(self, seconds: float) -> datetime:
        """The date at that many seconds of this clock."""
        return self._start + timedelta(seconds=seconds)
