"""One local server process: started, watched until it answers, and hurt on purpose by fault tests."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Protocol

from worker.errors import ServiceUnavailable
from worker.stack import ports
from worker.stack.process import Child, Command, family, wait_gone

_READY_SECONDS = 60
_STOP_SECONDS = 20


class NotReady(Exception):
    """A probe's answer while the server is still coming up; its text says what is missing."""


class Recipe(Protocol):
    """How one kind of server is started and asked whether it works."""

    name: str
    stop_signal: signal.Signals

    @property
    def url(self) -> str: ...
    def command(self) -> Command: ...
    def probe(self) -> None: ...
    def ports(self) -> list[int]: ...
    def move(self) -> bool: ...


class LocalServer:
    """A server process of ours: it can be stopped, killed, frozen and started again on the same port and data."""

    def __init__(self, recipe: Recipe, log_file: Path) -> None:
        self._recipe = recipe
        self._child = Child()
        self._thaw: subprocess.Popen[bytes] | None = None
        self._family: dict[int, str] = {}
        self.log_file = log_file

    @property
    def name(self) -> str:
        return self._recipe.name

    @property
    def url(self) -> str:
        return self._recipe.url

    @property
    def pid(self) -> int:
        if self._child.process is None:
            raise ServiceUnavailable(self.name, f"{self.name} was never started")
        return self._child.process.pid

    @property
    def running(self) -> bool:
        return self._child.process is not None and self._child.process.poll() is None

    def start(self) -> None:
        """Start on the same port and data; returns when it answers. Callable from any thread."""
        if not self.running:
            self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start the process without waiting for it to answer."""
        with self.log_file.open("ab") as log:
            self._child.start(self._recipe.command(), output=log)

    def wait_ready(self, *, may_move: bool = False) -> None:
        """Return when the server answers a real request; `may_move` allows another port if a stranger took ours."""
        deadline = time.monotonic() + _READY_SECONDS
        moves = 5 if may_move else 0
        missing = "no answer"
        while time.monotonic() < deadline:
            if not self.running:
                lost = [port for port in self._recipe.ports() if not ports.is_free(port)]
                if lost and moves and self._recipe.move():
                    moves -= 1
                    self.spawn()
                    continue
                ended = f"{self.name} ended while starting" + (f": port {lost[0]} is in use" if lost else "")
                raise self._failed(ended)
            try:
                return self._recipe.probe()
            except NotReady as reason:
                missing = str(reason)
            time.sleep(0.05)
        raise self._failed(f"{self.name} did not answer within {_READY_SECONDS} s: {missing}")

    def stop(self, sign: signal.Signals | None = None) -> None:
        """Ask it to end and wait until it and its children are gone; a server that does not end is killed."""
        self.ask_to_stop(sign)
        self.wait_gone()

    def ask_to_stop(self, sign: signal.Signals | None = None) -> None:
        self.resume()
        if self.running:
            self._family = family(self.pid)
            os.kill(self.pid, sign or self._recipe.stop_signal)

    def kill(self) -> None:
        """SIGKILL, as a crash would; returns when it and its children are gone."""
        if self.running:
            self._family = family(self.pid)
            os.kill(self.pid, signal.SIGKILL)
        self.resume()
        self.wait_gone()

    def pause(self) -> None:
        """Freeze it and its children; connections stay open and nothing answers."""
        if self._thaw is not None:
            return
        os.kill(self.pid, signal.SIGSTOP)  # before its children are listed: it cannot make another one now
        frozen = list(family(self.pid))
        # A frozen server cannot act on its death signal: a guard thaws it when we resume, or when we die.
        self._thaw = subprocess.Popen(
            ["/bin/sh", "-c", 'read _; kill -CONT "$@" 2>/dev/null', "thaw", *map(str, frozen)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        for pid in frozen:
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Thaw it; harmless when it is not frozen."""
        thaw, self._thaw = self._thaw, None
        if thaw is not None:
            thaw.communicate(b"\n")

    def wait_gone(self) -> None:
        process = self._child.process
        if process is None:
            return
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.end()
        # Orphans of a killed postmaster end on their own, and a start before that is refused by the data folder.
        wait_gone(self._family, _STOP_SECONDS)

    def end(self) -> None:
        """The last word at close: nothing of it is left afterwards."""
        self.resume()
        self._child.end()

    def _failed(self, problem: str) -> ServiceUnavailable:
        self.end()
        tail = self.log_file.read_text(errors="replace").strip().splitlines()[-8:] if self.log_file.exists() else []
        return ServiceUnavailable(
            self.name, problem, advice="\n  ".join(["its last words were:", *tail]) if tail else "it said nothing"
        )


def _signal(pid: int, sign: signal.Signals) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return
