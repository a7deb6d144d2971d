"""`oncebox stack up`, `status` and `down`: a stack that outlives the command."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import eventually_sync
from worker.stack import record
from worker.stack.detached import Detached
from worker.stack.process import born, family

ONCEBOX = [sys.executable, "-c", "from worker.cli import main; main()"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with a state folder of its own, and no stack left in it."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    for variable in ("DATABASE_URL", "REDIS_URL"):
        given.pop(variable, None)
    # Kafka by address: what is tested here is the supervisor, and it starts faster without Java.
    given |= {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9",
        "XDG_STATE_HOME": str(tmp_path),
        "DOCKER_HOST": "unix:///nowhere/docker.sock",
    }
    yield given
    _oncebox("down", given)
    elsewhere = Detached(given).folder / "data/postgres"
    if elsewhere.is_symlink():
        shutil.rmtree(elsewhere.resolve())


def test_up_status_down(place: dict[str, str]) -> None:
    assert _oncebox("status", place).stdout == "not running\n"
    up = _oncebox("up", place)
    assert up.returncode == 0, up.stderr
    exported = dict(line.removeprefix("export ").split("=", 1) for line in up.stdout.splitlines())
    assert set(exported) == {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL", "REDIS_URL"}

    again = _oncebox("up", place)
    assert (again.stdout, again.stderr) == (up.stdout, "already running\n")
    assert json.loads(_oncebox("status", place, "--json").stdout)["environment"] == exported

    running = _record(place)
    assert [process.name for process in running.processes] == ["postgres", "redis"]
    assert _oncebox("down", place).stderr == "stopped\n"
    assert not [process for process in (running.supervisor, *running.processes) if process.alive]
    assert _oncebox("down", place).stderr == "not running\n"

    # The same shell still has the addresses of the stack that is gone; they must not count as named by the user.
    back = _oncebox("up", {**place, **exported})
    assert back.stdout == up.stdout
    assert "postgres: local" in back.stderr


def test_a_killed_supervisor_takes_its_servers_along(place: dict[str, str]) -> None:
    assert _oncebox("up", place).returncode == 0
    running = _record(place)
    os.kill(running.supervisor.pid, signal.SIGKILL)
    eventually_sync(lambda: not any(one.alive for one in running.processes), 15, "servers gone")
    assert json.loads(_oncebox("status", place, "--json").stdout)["running"] is False
    assert _oncebox("up", place, "--fresh").returncode == 0


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_up_leaves_no_supervisor_and_no_server(place: dict[str, str], sign: signal.Signals) -> None:
    up = subprocess.Popen([*ONCEBOX, "stack", "up"], env=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually_sync(lambda: len(family(up.pid)) > 2, 15, "a supervisor with a child")
    begun = family(up.pid)
    up.send_signal(sign)
    up.communicate(timeout=30)
    eventually_sync(lambda: not any(born(pid) == birth for pid, birth in begun.items()), 20, "everything gone")
    assert Detached(place).find() is None


def test_down_never_ends_a_stranger_that_got_the_pid(place: dict[str, str]) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        file = Detached(place).folder / "stack.json"
        claimed = record.Process("supervisor", stranger.pid, "another time")
        record.write(file, record.Record(claimed, [], [], {}))
        assert _oncebox("down", place).stderr == "not running\n"
        assert born(stranger.pid)
        assert not file.exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_start_that_fails_says_why_and_leaves_no_supervisor(place: dict[str, str]) -> None:
    del place["KAFKA_BOOTSTRAP_SERVERS"]
    (Detached(place).folder / "data").write_text("in the way")
    failed = _oncebox("up", place)
    assert failed.returncode != 0
    assert "Traceback" not in failed.stderr
    assert Detached(place).find() is None


def _record(place: dict[str, str]) -> record.Record:
    found = Detached(place).find()
    assert found is not None
    return found


def _oncebox(verb: str, place: dict[str, str], *flags: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*ONCEBOX, "stack", verb, *flags], env=place, capture_output=True, text=True, timeout=60, check=False
    )
