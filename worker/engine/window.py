"""The window of claims: how many may be open, and how many of them are made at once."""

import asyncio
from collections.abc import Callable

# Parts of the window that are claimed, run and completed at the same time.
_SHARES = 3
_SMALL = 64  # a window that is not divided
_MOMENT = 0.02  # seconds


class Window:
    """The claims of one worker by number: no new ones are made beyond `in_flight`."""

    def __init__(self, in_flight: int, look: Callable[[], None], clock: Callable[[], float]) -> None:
        self.open = 0
        self._in_flight = in_flight
        self.worth = max(1, in_flight // _SHARES)  # how many are worth waiting for while more are on their way
        self._share = max(in_flight // _SHARES, min(in_flight, _SMALL))
        self._look = look
        self._clock = clock
        self._made_at = -_MOMENT
        self._look_again: asyncio.TimerHandle | None = None

    @property
    def scarce(self) -> bool:
        """Whether there is less room than is taken."""
        return 2 * self.open > self._in_flight

    def room(self, ready: int, completing: int, crowd: int) -> int:
        """How many of those that are ready may be claimed at once now.

        Never all that `in_flight` allows, so that claiming, running and completing overlap; and no crumbs while there
        is about to be more room, nor, for a moment, while more is claimed than can start: a call for a few costs nearly
        as much as one for many.
        """
        room = self._in_flight - self.open
        if room >= self._share:
            return self._share
        if room >= ready:
            return room
        return 0 if room < completing or (room < crowd and self._is_early()) else room

    def reserve(self, count: int) -> None:
        """So many are about to be claimed."""
        self.open += count
        self._made_at = self._clock()

    def _is_early(self) -> bool:
        """Whether the last claims were made just now; if so, look again in a moment, whatever ends meanwhile.

        Among what is ready may be messages whose handlers have nothing to wait for: the crowd is not theirs.
        """
        left = self._made_at + _MOMENT - self._clock()
        if left > 0 and self._look_again is None:
            self._look_again = asyncio.get_running_loop().call_later(left, self._time_has_passed)
        return left > 0

    def _time_has_passed(self) -> None:
        self._look_again = None
        self._look()
