"""The worker's own clock: never jumps, and goes on while the process or the machine sleeps."""

import time
from collections.abc import Callable


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


clock: Callable[[], float] = _boottime if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
