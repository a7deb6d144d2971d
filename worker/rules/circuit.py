"""The circuit of one handler: when most of what it does fails in one way, its records are held, not poured away."""

from collections import Counter, deque

_WINDOW = 20
_FAILURES = 10
_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 60.0


class Circuit:
    """Closed while things go well; open after too many equal failures; half-open lets one through at a time."""

    __slots__ = ("_last", "_longest_run", "_pause", "_trying", "_until", "calm", "open")

    def __init__(self, longest_run: float = 0.0) -> None:
        self._last: deque[str | None] = deque(maxlen=_WINDOW)
        self._longest_run = longest_run
        self._pause = _FIRST_PAUSE
        self._until = 0.0
        self._trying = False
        self.open = False
        self.calm = True  # nothing failed lately: a success need not be told

    def may_try(self, now: float) -> bool:
        """Let one execution through an open circuit when its time has come; the next only when that one is over."""
        if not self.open or now < self._until:
            return False
        self._until = now + max(self._pause, self._longest_run)
        self._trying = True
        return True

    def not_tried(self) -> None:
        """What was let through was not executed after all: another may be let through at once."""
        if self._trying:
            self._trying = False
            self._until = 0.0

    def ended(self, error: str | None, now: float) -> bool:
        """Note how an execution ended, by its class of error or None; True when the circuit opens or closes by it.

        Success is not remembered while nothing failed lately.
        """
        if error is None:
            if self.open:
                self.open = self._trying = False
                self._pause = _FIRST_PAUSE
                self._forget()
                return True
            if not self.calm:
                self._last.append(None)
                if not any(self._last):
                    self._forget()
            return False
        self.calm = False
        self._last.append(error)
        if self.open:
            # Only the one that was let through says something new; the others had begun before it opened.
            if self._trying:
                self._trying = False
                self._pause = min(_LONGEST_PAUSE, self._pause * 2)
                self._until = now + self._pause
            return False
        counts = Counter(e for e in self._last if e is not None)
        self.open = counts.most_common(1)[0][1] >= _FAILURES
        self._until = now + self._pause
        return self.open

    def _forget(self) -> None:
        self._last.clear()
        self.calm = True
