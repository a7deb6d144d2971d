"""The clock inside a contender's process: from the assignment to its last durable step, start-up left out."""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path


class Stopwatch:
    """Tells the parent, on standard output, when work began and what it took."""

    def __init__(self, limit: int) -> None:
        # The kernel keeps this promise also when the event loop hangs or the parent was killed.
        signal.alarm(limit)
        self._began: tuple[float, float] | None = None
        self._last = (0.0, 0.0)

    @property
    def running(self) -> bool:
        return self._began is not None

    def start(self) -> None:
        """Partitions are assigned; later calls do nothing."""
        if self._began is None:
            self._began = self._last = _now()
            os.write(sys.stdout.fileno(), b"began\n")

    def lap(self) -> None:
        """Something became durable; the last of these stops the clock."""
        self._last = _now()

    @property
    def seconds(self) -> float:
        return self._last[0] - self._start[0]

    @property
    def cpu_seconds(self) -> float:
        """Of all threads of this process, in user and kernel mode."""
        return self._last[1] - self._start[1]

    def tell(self, **counted: int) -> None:
        """Say what it took and what was counted."""
        found = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "rss_bytes": peak_rss(), **counted}
        os.write(sys.stdout.fileno(), json.dumps(found).encode() + b"\n")

    @property
    def _start(self) -> tuple[float, float]:
        assert self._began is not None, "nothing was assigned"
        return self._began


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def peak_rss() -> int:
    """The most memory this process had resident, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    # Not ru_maxrss here: it remembers the parent's size from before exec.
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
