"""What a demo that stays up says one can try next works, word for word."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.command import environment, finish


@pytest.fixture
def given(tmp_path: Path) -> Iterator[dict[str, str]]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = environment(XDG_STATE_HOME=str(tmp_path / "state"), PATH=path)
    yield env
    finish("stack", "down", env=env, cwd=tmp_path)


def test_the_next_steps_of_a_demo_that_stays_up_work(given: dict[str, str], tmp_path: Path) -> None:
    code, output, errors = finish("demo", "--keep", "--messages", "600", "--seed", "7", env=given, cwd=tmp_path)
    assert code == 0, output + errors
    steps = re.findall(r"^  # .+\n  (.+)$", output.partition("try next:")[2], re.MULTILINE)
    assert ("oncebox keys resolve" in output) == ("the gateway has charged it" in output)
    assert [step for step in steps if "oncebox keys list" in step]
    assert steps[-1] == "oncebox stack down"
    # psql is not on every machine.
    script = "\n".join(step for step in steps if not step.startswith("psql "))
    done = subprocess.run(
        ["bash", "-euxc", script], env=given, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is now completed") == ("oncebox keys resolve" in output)
