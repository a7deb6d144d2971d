"""The real `oncebox`, in a process of its own, in an environment that holds nothing else."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(sys.executable).with_name("oncebox")


@dataclass(frozen=True)
class Answer:
    """What a command said and how it ended."""

    code: int
    output: str
    error: str


def oncebox(*arguments: str | Path, cwd: Path, **environ: str) -> Answer:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [str(SCRIPT), *map(str, arguments)],
        cwd=cwd,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def complaint(answer: Answer, code: int) -> str:
    """The one message of a command that failed as expected: no traceback, one beginning, nothing secret."""
    assert answer.code == code, answer
    assert "Traceback" not in answer.error
    assert answer.error.startswith("oncebox: "), answer.error
    assert answer.error.count("oncebox: ") == 1
    assert "hunter2" not in answer.output + answer.error
    return answer.error
