"""A sampling profiler: at every tick of CPU time, which line runs.

Compiled code has no frames, so its time belongs to the line that called it. A signal that comes while compiled code
runs under the event loop is seen only when the next Python function is entered: such a sample belongs to the loop.
"""

import dis
import signal
import time
from collections import Counter
from types import FrameType
from typing import NamedTuple

_RESUME = dis.opmap["RESUME"]
_TICK_SECONDS = 0.001


class Spot(NamedTuple):
    """A place in the code."""

    module: str
    function: str
    file: str
    line: int


LOOP = Spot("event loop", "compiled callbacks", "", 0)


class Sampler:
    """Counts where the main thread was, between start and stop."""

    def __init__(self) -> None:
        self.spots: Counter[Spot] = Counter()
        self.cpu_seconds = 0.0
        self._began = 0.0

    @property
    def samples(self) -> int:
        return self.spots.total()

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        self._began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _TICK_SECONDS, _TICK_SECONDS)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        self.cpu_seconds = time.process_time() - self._began

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_code[frame.f_lasti] == _RESUME:
            frame = frame.f_back
        if frame is None or frame.f_globals.get("__name__") == "asyncio.runners":
            self.spots[LOOP] += 1
            return
        code = frame.f_code
        module = str(frame.f_globals.get("__name__", "?"))
        self.spots[Spot(module, code.co_qualname, code.co_filename, frame.f_lineno or 0)] += 1
