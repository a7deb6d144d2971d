"""The worker processes: ordinary `oncebox run`, started, watched through their logs, killed and stopped by pid."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from worker.errors import OnceboxError
from worker.stack.process import Child, Command

_RUN = [sys.executable, "-c", "from worker.cli import main; main()", "run", "worker.demo.handlers"]
_STOP_SECONDS = 30


class Worker:
    """One worker of the group. It dies with us, however we die."""

    def __init__(self, number: int, environment: Mapping[str, str], folder: Path) -> None:
        self.number = number
        self.killed = False
        self._log = folder / f"worker-{number}.log"
        self._child = Child()
        with self._log.open("wb") as log:
            self._process = self._child.start(Command(_RUN, environment, folder), output=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def state(self) -> str:
        if self.killed:
            return "killed"
        return "running" if self._process.poll() is None else f"ended with {self._process.returncode}"

    def has_partitions(self) -> bool:
        """Whether the group has given it something to read; raises when it has ended instead."""
        self.must_run()
        return any(line.get("event") == "partitions_assigned" and line.get("partitions") for line in self._lines())

    def must_run(self) -> None:
        """A worker that ends by itself is a failure of the demo, with the worker's own words."""
        if not self.killed and self._process.poll() is not None:
            raise OnceboxError(f"worker {self.number} {self.state}\n  {self.last_words()}")

    def kill(self) -> None:
        """SIGKILL: no handler, no flush, no goodbye."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        self.killed = True

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def wait_stopped(self) -> None:
        """Return when it has drained and left; a worker that does not is an error."""
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise OnceboxError(f"worker {self.number} does not stop\n  {self.last_words()}") from None
        if code and not self.killed:
            raise OnceboxError(f"worker {self.number} ended with {code}\n  {self.last_words()}")

    def end(self) -> None:
        """The last word: nothing of it is left afterwards."""
        self._child.end()

    def last_words(self) -> str:
        return "\n  ".join(self._log.read_text(errors="replace").strip().splitlines()[-5:]) or "it said nothing"

    def _lines(self) -> Iterator[dict[str, Any]]:
        for text in self._log.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield line
