"""When to leave Redis alone: after failures in a row nobody calls it for a while, then one call tries."""

import time
from collections.abc import Callable
from typing import Final

Notice = Callable[..., None]

_FAILURES: Final = 3
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


class Breaker:
    """Counts failures in a row; opens for one second, doubling to thirty, and half-opens for a single call."""

    def __init__(self, name: str, notice: Notice, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._notice = notice
        self._clock = clock
        self._failures = 0
        self._pause = 0.0
        self._until = 0.0
        self._since = 0.0
        self._trying = False
        self._era = 0

    @property
    def ready(self) -> bool:
        """Whether a call may begin now."""
        return not self._pause or (not self._trying and self._clock() >= self._until)

    def begin(self) -> int | None:
        """The era of a call that may begin, None when none may; the call ends in exactly one of the three below."""
        if self._pause:
            if not self.ready:
                return None
            self._trying = True
        return self._era

    def succeeded(self, era: int) -> None:
        # A call begun before the circuit opened says nothing about the time since.
        if era != self._era:
            return
        self._failures = 0
        if self._pause:
            self._pause, self._trying = 0.0, False
            self._notice("filter_resumed", calls=self.name, after_seconds=round(self._clock() - self._since, 3))

    def failed(self, era: int, error: Exception) -> None:
        # Calls that fail together are one piece of news: only the one that opened the circuit sets the pause.
        if era != self._era:
            return
        now = self._clock()
        if self._pause:
            self._trying = False
            self._pause = min(_LONGEST_PAUSE, self._pause * 2)
            self._until = now + self._pause
            return
        self._failures += 1
        if self._failures >= _FAILURES:
            self._failures = 0
            self._era += 1
            self._pause, self._since = _FIRST_PAUSE, now
            self._until = now + _FIRST_PAUSE
            told = str(error) or type(error).__name__
            self._notice("filter_paused", calls=self.name, error=told, next="Postgres answers without it")

    def abandoned(self, era: int) -> None:
        """The call was cancelled: no news, but another one may try."""
        if era == self._era:
            self._trying = False
