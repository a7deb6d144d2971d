"""The real `oncebox` in a process of its own, in an environment without services but those a test gives it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
ONCEBOX = [sys.executable, "-c", "from worker.cli import main; main()"]
_SERVICES = ("KAFKA_", "ONCEBOX_", "DATABASE_URL", "REDIS_URL", "XDG_STATE_HOME")


def environment(**extra: str) -> dict[str, str]:
    """Ours without any service or setting in it, so that only what the test names counts."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(_SERVICES)}
    return {**given, "PYTHONPATH": str(ROOT), "DOCKER_HOST": "unix:///nowhere/docker.sock", **extra}


def start(*words: str, env: Mapping[str, str], cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*ONCEBOX, *words],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(*words: str, env: Mapping[str, str], cwd: Path, timeout: float = 100) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; a command that hangs is killed and fails the test."""
    process = start(*words, env=env, cwd=cwd)
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
        process.wait()
    return process.returncode, output, errors
