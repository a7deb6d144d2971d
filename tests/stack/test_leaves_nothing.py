"""Whatever ends the process that started a stack, the stack ends too."""

import os
import signal

import pytest

from tests.stack.holding import holder
from worker.stack import folders


@pytest.fixture(autouse=True)
def _no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


def test_kill_9_of_the_parent_ends_kafka_postgres_and_redis() -> None:
    with holder(["kafka", "postgres", "redis"]) as held:
        assert set(held.servers) == {"kafka", "postgres", "redis"}
        assert set(held.left()) >= set(held.servers.values())
        held.process.kill()
        held.expect_nothing_left()


def test_ctrl_c_ends_everything_and_removes_the_folder() -> None:
    with holder(["kafka", "postgres", "redis"]) as held:
        assert held.folder.is_dir()
        os.kill(held.process.pid, signal.SIGINT)
        assert held.process.wait(30) == 130
        held.expect_nothing_left()
        assert not held.folder.exists()


def test_kill_9_of_the_parent_ends_servers_that_are_frozen() -> None:
    with holder(["postgres", "redis"]) as held:
        assert held.tell("pause postgres") == "paused\n"
        assert held.tell("pause redis") == "paused\n"
        held.process.kill()
        held.expect_nothing_left()


def test_the_next_start_removes_the_folder_of_a_killed_one_and_no_other() -> None:
    with holder(["redis"]) as alive, holder(["redis"]) as killed:
        killed.process.kill()
        killed.expect_nothing_left()
        assert killed.folder.is_dir()
        mine = folders.temporary()
        try:
            assert not killed.folder.exists()
            assert alive.folder.is_dir()
            assert mine.path.is_dir()
        finally:
            mine.release()
        assert not mine.path.exists()
