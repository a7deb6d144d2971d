"""The nursery: a process that has imported everything once and forks worker processes on request.

A worker's start costs a second of imports; a story about members that come and go needs it to cost nothing. Requests
and answers are JSON lines on standard input and output. When the input ends, the nursery kills its children and ends.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[2]


class Nursery:
    """Our end of it. Callable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.nursery"],
            cwd=REPO,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(self.close)

    def fork(self, words: Sequence[str], environment: Mapping[str, str], log: Path, **more: str) -> "Forked":
        """A victim with these words; with `output` and `cwd`, the command line with standard output of its own."""
        answer = self.ask(words=list(words), environment=dict(environment), log=str(log), **more)
        return Forked(self, answer["pid"])

    def ask(self, **request: Any) -> Any:
        with self._lock:
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            self._popen.stdin.write(json.dumps(request).encode() + b"\n")
            self._popen.stdin.flush()
            return json.loads(self._popen.stdout.readline())

    def close(self) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        self._popen.wait(10)


class Forked:
    """A worker process that was forked for us, seen as if it were our child."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self._nursery.ask(ended=self.pid)["code"]
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        # Not reaped before we asked, so the number cannot be another process's by now.
        if self.poll() is None:
            os.kill(self.pid, number)


@functools.cache
def nursery() -> Nursery:
    return Nursery()


def main() -> None:
    """The nursery itself: one thread, so that forking is safe."""
    from tests.engine import victim

    children: set[int] = set()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "ended" in request:
            found, status = os.waitpid(request["ended"], os.WNOHANG)
            children.discard(found)
            answer = {"code": os.waitstatus_to_exitcode(status) if found else None}
        else:
            if "output" in request:
                importlib.import_module("tests.backlog.commands")
            pid = os.fork()
            if pid == 0:
                become(request)
                if "output" in request:
                    command_line(request["words"])
                victim.main(request["words"])
            children.add(pid)
            answer = {"pid": pid}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def command_line(words: Sequence[str]) -> None:
    from worker.cli import main as oncebox

    oncebox(words)


def become(request: dict[str, Any]) -> None:
    """Give the child its own environment, input and output."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT, 0o600) if "output" in request else log
    for source, target in ((nothing, 0), (output, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(request.get("cwd", "."))
    os.environ.clear()
    os.environ.update(request["environment"])


if __name__ == "__main__":
    main()
