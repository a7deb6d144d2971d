"""Starting a holder, and knowing whether the processes it made are gone."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import eventually_sync
from worker.stack.process import born, family

ROOT = Path(__file__).parents[2]


@dataclass
class Holder:
    """One holder whose stack answers, and every process of that stack by pid and birth."""

    process: subprocess.Popen[str]
    servers: dict[str, int]
    services: dict[str, list[str]]
    folder: Path
    family: dict[int, str]

    def tell(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def left(self) -> list[int]:
        """What still runs; a zombie has ended, PID 1 only buries it late."""
        return [pid for pid, birth in self.family.items() if born(pid) == birth]

    def expect_nothing_left(self) -> None:
        self.process.wait(30)
        eventually_sync(lambda: not self.left(), 15, f"processes {self.left()} of {self.servers} to end")


@contextmanager
def holder(names: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Holder]:
    given = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    for variable in ("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_BROKERS", "DATABASE_URL", "REDIS_URL"):
        given.pop(variable, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stack.holder", json.dumps(list(names))],
        env=given,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the holder ended with {process.wait()}"
        told = json.loads(line)
        yield Holder(process, told["servers"], told["services"], Path(told["folder"]), _below(process.pid))
    finally:
        process.kill()
        process.communicate()


def _below(pid: int) -> dict[int, str]:
    found = family(pid)
    found.pop(pid, None)
    return found
