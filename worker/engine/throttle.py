"""A rate: so many a second, smoothly, with no burst after a pause."""

import asyncio
from collections.abc import Callable

# How much of a second's allowance may gather while nobody asks.
_BURST = 0.25


class Throttle:
    """Turns that come at a rate."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._most = max(2.0, rate * _BURST)
        self._turns = 1.0
        self._at = clock()

    def take(self) -> bool:
        """Take a turn, if there is one."""
        self._gather()
        if self._turns < 1.0:
            return False
        self._turns -= 1.0
        return True

    async def some(self, longest: float) -> None:
        """Wait for the next turn, but not longer than that."""
        self._gather()
        if self._turns < 1.0:
            await asyncio.sleep(min(longest, (1.0 - self._turns) / self._rate))

    def _gather(self) -> None:
        now = self._clock()
        self._turns = min(self._most, self._turns + (now - self._at) * self._rate)
        self._at = now
