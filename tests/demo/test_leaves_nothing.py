"""However a demo with a stack of its own ends, no broker, Postgres, Redis or worker outlives it."""

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.command import environment, start
from tests.waiting import eventually_sync
from worker.stack.process import born, family


@pytest.fixture
def mark() -> str:
    """A variable that every process of one demo inherits."""
    return secrets.token_hex(8)


@pytest.fixture
def demo(mark: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    given = environment(DEMO_MARK=mark, **request.param)
    process = start("demo", "--json", "--messages", "20000", env=given, cwd=tmp_path)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("demo", [{}], indirect=True, ids=["java"])
def test_kill_9_of_the_demo(demo: "subprocess.Popen[str]", mark: str) -> None:
    _wait_for(demo, "worker 2 started")
    everything = family(demo.pid)
    # The demo, Kafka, Postgres with its backends, Redis, two workers.
    assert len(everything) > 6
    demo.kill()
    demo.communicate(timeout=30)
    _expect_nothing_left(everything, mark)


@pytest.mark.parametrize("demo", [{"PATH": "/nowhere", "JAVA_HOME": ""}], indirect=True, ids=["memory"])
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_a_plain_kill_stops_cleanly(demo: "subprocess.Popen[str]", mark: str, sign: signal.Signals) -> None:
    _wait_for(demo, "worker 2 started")
    everything = family(demo.pid)
    folders = _folders(demo.pid)
    assert folders
    demo.send_signal(sign)
    output, errors = demo.communicate(timeout=30)
    assert demo.returncode == 128 + sign
    assert (output, "Traceback" in errors) == ("", False), errors
    _expect_nothing_left(everything, mark)
    assert not [folder for folder in folders if folder.exists()]


def _wait_for(demo: "subprocess.Popen[str]", word: str) -> None:
    assert demo.stderr is not None
    for line in demo.stderr:
        if word in line:
            return
    raise AssertionError(f"the demo ended with {demo.wait()} before it said {word!r}")


def _expect_nothing_left(everything: dict[int, str], mark: str) -> None:
    def left() -> list[int]:
        return [pid for pid, birth in everything.items() if born(pid) == birth] + _marked(mark)

    eventually_sync(lambda: not left(), 15, f"the end of {left()}")


def _marked(mark: str) -> list[int]:
    """Processes that inherited the variable, wherever they hang in the tree by now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            inherited = mark.encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if inherited and born(int(folder.name)):
            found.append(int(folder.name))
    return found


def _folders(pid: int) -> list[Path]:
    """The temporary folders of one process."""
    roots = [Path("/tmp"), Path("/var/tmp"), Path(os.environ.get("TMPDIR", "/tmp"))]
    return [folder for root in roots for folder in root.glob(f"oncebox-{os.getuid()}/run-{pid}-*")]
