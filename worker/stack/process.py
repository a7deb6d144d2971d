"""Child processes that cannot outlive us. Owns fork and signals; knows nothing of the servers it starts."""

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None

T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """One child to start: what, where, as whom, and the signal it gets when we die."""

    argv: Sequence[str | Path]
    environment: Mapping[str, str]
    cwd: Path
    user: int | None = None
    death_signal: signal.Signals = signal.SIGKILL
    stdin: int = subprocess.DEVNULL


class _Spawner:
    """One thread that lives as long as the process and makes every child.

    The kernel sends the death signal when the *thread* that forked ends, so a child started from
    a short-lived thread (asyncio.to_thread in a test) would die with that thread.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._owner = 0

    def call(self, action: Callable[[], T]) -> T:
        with self._lock:
            if self._owner != os.getpid():  # first use, or we are a fork without the thread
                self._owner = os.getpid()
                self._work = queue.SimpleQueue()
                threading.Thread(target=self._serve, name="oncebox-spawner", daemon=True).start()
        answer: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                answer.put((action(), None))
            except BaseException as error:
                answer.put((None, error))

        self._work.put(work)
        value, error = answer.get()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def _serve(self) -> None:
        while True:
            self._work.get()()


_spawner = _Spawner()


class Child:
    """One process of ours; `process` is set by the spawner, so an interrupted caller still finds and ends it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self, command: Command, *, output: IO[bytes] | int, errors: IO[bytes] | int = subprocess.STDOUT
    ) -> subprocess.Popen[bytes]:
        """Start it in a session of its own, so that Ctrl-C in the terminal reaches only us and we stop it in order."""
        parent = os.getpid()

        def die_with_parent() -> None:
            if _LIBC is not None:
                _LIBC.prctl(_PR_SET_PDEATHSIG, int(command.death_signal), 0, 0, 0)
                if os.getppid() != parent:  # the parent died before the line above: no signal would ever come
                    os._exit(1)

        def fork() -> subprocess.Popen[bytes]:
            self.process = subprocess.Popen(
                [str(part) for part in command.argv],
                env=dict(command.environment),
                cwd=command.cwd,
                stdin=command.stdin,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                user=command.user,
                group=command.user,
                extra_groups=[] if command.user is not None else None,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
            return self.process

        return _spawner.call(fork)

    def end(self) -> None:
        """Kill it with what it started and wait; harmless when it is gone or was never started."""
        # Through the spawner: a fork that an interrupted caller asked for is finished before we look.
        process = _spawner.call(lambda: self.process)
        if process is None or process.poll() is not None:
            return
        below = family(process.pid)
        # Its whole group: what a killed initdb started would go on writing where we are about to tidy up.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wait_gone(below, 10)


def run(command: Command, *, each_line: Callable[[str], None] | None = None) -> tuple[int, str]:
    """Run a child to its end and give exit code and output; whatever interrupts us ends the child too."""
    child = Child()
    lines: list[str] = []
    try:
        process = child.start(command, output=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as output:
            for raw in output:
                lines.append(raw.decode(errors="replace").rstrip())
                if each_line:
                    each_line(lines[-1])
        return process.wait(), "\n".join(lines)
    finally:
        child.end()


def born(pid: int) -> str | None:
    """When a process started, as an opaque word; None when it is gone or a zombie. Pid and word together are unique."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else fields[19]
    listed = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = listed.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else "-".join(started.split())


def wait_gone(processes: Mapping[int, str], seconds: float) -> None:
    """Wait until none of these (pid to birth) runs, or the time is over."""
    deadline = time.monotonic() + seconds
    while any(born(pid) == birth for pid, birth in processes.items()) and time.monotonic() < deadline:
        time.sleep(0.02)


def family(pid: int) -> dict[int, str]:
    """A process and everything below it, pid to birth."""
    birth = born(pid)
    found = {pid: birth} if birth else {}
    for child in children(pid):
        found.update(family(child))
    return found


def children(pid: int) -> list[int]:
    """The live children of a process; empty where the system has no /proc."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in "ZX" and int(fields[1]) == pid:
            found.append(int(folder.name))
    return found
