"""What is written down about a stack that was left running: who holds it, and how to reach it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from worker.stack.process import born
from worker.stack.service import Service


@dataclass(frozen=True)
class Process:
    """One process for certain: a pid alone may since belong to a stranger."""

    name: str
    pid: int
    born: str

    @property
    def alive(self) -> bool:
        return born(self.pid) == self.born


@dataclass(frozen=True)
class Record:
    """One detached stack; it runs exactly while its supervisor does."""

    supervisor: Process
    processes: Sequence[Process]
    services: Sequence[Service]
    environment: Mapping[str, str]


def write(file: Path, record: Record) -> None:
    write_secret(file, asdict(record))


def write_secret(file: Path, content: Mapping[str, Any]) -> None:
    """Replace the file in one step; it holds passwords, so only its owner can read it."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(content, out, indent=2)
    new.replace(file)


def read(file: Path) -> Record | None:
    """The last record, whether or not its supervisor still lives; None when there is none."""
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    return Record(
        supervisor=Process(**found["supervisor"]),
        processes=[Process(**process) for process in found["processes"]],
        services=[Service(**service) for service in found["services"]],
        environment=found["environment"],
    )
