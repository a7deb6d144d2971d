"""Where the files are that an operator installs, and the tools that came with the development packages."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def tool(name: str) -> str:
    """A program from this environment; CI never skips, elsewhere its platform may have no wheel of it."""
    found = Path(sys.executable).with_name(name)
    if not found.exists():
        absent(f"{name} is not installed: no wheel for this platform")
    return str(found)


def absent(why: str) -> NoReturn:
    """Skip, but never in CI."""
    if os.environ.get("CI", "").lower() in {"true", "1"}:
        pytest.fail(f"{why}, and CI must not skip")
    pytest.skip(why)


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A program and all it said; how it ended is for the test to judge."""
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
    )
