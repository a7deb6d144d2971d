"""The process that holds a detached stack: its servers are its children and end with it, however it ends.

It tells whoever started it what happens, as JSON lines on stdout, until the stack is ready:
{"say": text}, then {"ready": true} or {"failed": {...}}.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from worker.errors import ConfigError, OnceboxError, ServiceUnavailable
from worker.stack import record
from worker.stack.process import born
from worker.stack.stack import Stack, start


def main(folder: Path, ports: dict[str, int]) -> int:
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sign, _leave)
    try:
        # A reader that went away makes `_tell` fail, which ends the start and everything it began.
        stack = start(say=lambda text: _tell({"say": text}), data=folder / "data", ports=ports)
    except OnceboxError as error:
        _tell({"failed": _described(error)})
        return 1
    file = folder / "stack.json"
    with stack:
        record.write(file, _recorded(stack))
        try:
            _tell({"ready": True})
            _hush()
            while True:
                signal.pause()
        finally:
            stack.close()
            file.unlink(missing_ok=True)


def _recorded(stack: Stack) -> record.Record:
    return record.Record(
        supervisor=_process("supervisor", os.getpid()),
        processes=[_process(name, pid) for name, pid in stack.pids().items()],
        services=stack.services,
        environment=stack.environment(),
    )


def _process(name: str, pid: int) -> record.Process:
    return record.Process(name, pid, born(pid) or "gone")


def _leave(sign: int, frame: FrameType | None) -> NoReturn:
    # Once is enough: a second signal must not cut the first one's clean-up short.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(0)


def _tell(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _hush() -> None:
    """Let go of the pipe: its reader leaves now, and we stay."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _described(error: OnceboxError) -> dict[str, Any]:
    match error:
        case ServiceUnavailable():
            return {"kind": "service", "name": error.service, "problem": error.problem, "advice": error.advice}
        case ConfigError():
            return {"kind": "config", "name": error.setting, "problem": error.problem, "advice": error.advice}
        case _:
            return {"kind": "config", "name": None, "problem": str(error), "advice": None}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
