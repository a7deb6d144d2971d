"""How much memory a process has resident, again and again while it runs."""

import threading
import time
from types import TracebackType
from typing import Self

import psutil

_SECONDS = 0.25


class Memory:
    """Samples of one process: when, on the clock all processes share, and megabytes."""

    def __init__(self, pid: int) -> None:
        self.samples: list[tuple[float, float]] = []
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(_SECONDS):
            try:
                rss = self._process.memory_info().rss
            except psutil.NoSuchProcess:
                return
            if rss:
                self.samples.append((time.monotonic(), rss / 1e6))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
