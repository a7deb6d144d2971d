"""The worker's own clock: never jumps, and goes on while the process or the machine sleeps."""

import time
from collections.abc import Callable
from functools import partial

clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
