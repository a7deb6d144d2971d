"""A stack that outlives the command that started it: begun, found and ended through its supervisor."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from worker.errors import ConfigError, OnceboxError, ServiceUnavailable
from worker.stack import folders, record
from worker.stack.ports import check_named
from worker.stack.record import Record

_STOP_SECONDS = 60


class Detached:
    """The one detached stack of a state folder."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self.folder = folders.state(environment) / "stack"
        # Passable for everybody, as PostgreSQL may run as another user; every secret in it is a file of ours alone.
        self.folder.mkdir(mode=0o711, exist_ok=True)
        self._file = self.folder / "stack.json"
        self._exported = self.folder / "exported.json"

    def find(self) -> Record | None:
        """The running stack; None when there is none, also when its supervisor was killed."""
        found = record.read(self._file)
        return found if found and found.supervisor.alive else None

    def up(self, *, say: Callable[[str], None], ports: Mapping[str, int], fresh: bool) -> Record:
        """Start it unless it runs, and return when every service answers; `fresh` forgets all kept data first."""
        with folders.locked(self.folder):  # two commands at once: the second finds what the first started
            if running := self.find():
                if fresh:
                    raise ConfigError("the stack is running, so its data stays", advice="run oncebox stack down first")
                say("already running")
                return running
            for name, port in ports.items():
                check_named(name, port)
            if fresh:
                self._forget()
            return self._start(say, ports)

    def down(self) -> bool:
        """Stop it and wait until every process of it is gone; False when none was running."""
        found = record.read(self._file)
        if found is None:
            return False
        was_running = found.supervisor.alive
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if found.supervisor.alive:
                os.kill(found.supervisor.pid, sign)
                _until_gone(found, _STOP_SECONDS)
        left = [process for process in found.processes if process.alive]
        if left:
            raise ServiceUnavailable(left[0].name, f"{left[0].name} (process {left[0].pid}) does not end")
        self._file.unlink(missing_ok=True)
        return was_running

    def _start(self, say: Callable[[str], None], ports: Mapping[str, int]) -> Record:
        package = Path(__file__).parents[2]
        given = self._without_our_own()
        path = given.get("PYTHONPATH")
        environment = {**given, "PYTHONPATH": f"{package}:{path}" if path else str(package)}
        with (self.folder / "supervisor.log").open("wb") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "worker.stack.supervisor", str(self.folder), json.dumps(dict(ports))],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._listen(supervisor, say)
        except BaseException:
            supervisor.terminate()
            supervisor.wait()
            raise
        found = self.find()
        assert found is not None
        started = {service.url for service in found.services if service.how != "environment"}
        ours = {name: value for name, value in found.environment.items() if value in started}
        record.write_secret(self._exported, ours)
        # It stays when we leave, so nobody here will wait for it.
        supervisor.returncode = 0
        return found

    def _without_our_own(self) -> dict[str, str]:
        """The environment without addresses that an earlier `up` gave this shell: they lead to servers now gone."""
        ours = json.loads(self._exported.read_text()) if self._exported.exists() else {}
        return {name: value for name, value in self._environment.items() if ours.get(name) != value}

    def _listen(self, supervisor: subprocess.Popen[bytes], say: Callable[[str], None]) -> None:
        assert supervisor.stdout is not None
        with supervisor.stdout as lines:
            for line in lines:
                match json.loads(line):
                    case {"say": text}:
                        say(text)
                    case {"failed": description}:
                        raise _error(description)
                    case {"ready": True}:
                        return
        last = (self.folder / "supervisor.log").read_text().strip().splitlines()[-1:]
        raise ServiceUnavailable("stack", "the stack's supervisor ended while starting", advice="".join(last) or None)

    def _forget(self) -> None:
        data = self.folder / "data"
        elsewhere = data / "postgres"
        if elsewhere.is_symlink():
            shutil.rmtree(elsewhere.resolve(), ignore_errors=True)
        if data.exists():
            shutil.rmtree(data)


def _until_gone(found: Record, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process.alive for process in (found.supervisor, *found.processes)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _error(description: dict[str, Any]) -> OnceboxError:
    if description["kind"] == "service":
        return ServiceUnavailable(description["name"], description["problem"], advice=description["advice"])
    return ConfigError(description["problem"], setting=description["name"], advice=description["advice"])
