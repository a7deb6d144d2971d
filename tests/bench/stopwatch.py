"""The clock inside a contender's process: from the assignment to its last durable step, start-up left out."""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any


class Stopwatch:
    """Tells the parent, on standard output, when work began and what it took."""

    def __init__(self, limit: int) -> None:
        # The kernel keeps this promise also when the event loop hangs or the parent was killed.
        signal.alarm(limit)
        # What libraries print must not pass for our words.
        self._out = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._said = False
        self._began: tuple[float, float] | None = None
        self._last = (0.0, 0.0)

    @property
    def running(self) -> bool:
        return self._began is not None

    def say_ready(self) -> None:
        """Tell the parent that work can begin; later calls do nothing."""
        if not self._said:
            self._said = True
            os.write(self._out, b"began\n")

    def start(self) -> None:
        """Partitions are assigned; later calls do nothing."""
        if self._began is None:
            self._began = self._last = _now()
            self.say_ready()

    def lap(self) -> None:
        """Something became durable; the last of these stops the clock."""
        self._last = _now()

    @property
    def cpu_seconds(self) -> float:
        """Of all threads of this process, in user and kernel mode."""
        return self._last[1] - self._start[1]

    def tell(self, **counted: Any) -> None:
        """Say what it took and what was counted; times are on the clock that all processes share."""
        found = {
            "began": self._start[0],
            "ended": self._last[0],
            "cpu_seconds": self.cpu_seconds,
            "rss_bytes": peak_rss(),
            **counted,
        }
        os.write(self._out, json.dumps(found).encode() + b"\n")

    @property
    def _start(self) -> tuple[float, float]:
        assert self._began is not None, "nothing was assigned"
        return self._began


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


def peak_rss() -> int:
    """The most memory this process had resident, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    # Not ru_maxrss here: it remembers the parent's size from before exec.
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
