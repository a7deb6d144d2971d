"""A start that cannot work says why in one message and leaves nothing behind."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.errors import ConfigError, ServiceUnavailable
from worker.stack import KafkaOptions, folders, start
from worker.stack.process import children

BROKEN_JAVA = """#!/bin/sh
[ "$1" = -version ] && { echo 'openjdk version "17.0.1"' >&2; exit 0; }
case "$*" in *StorageTool*) exit 0;; esac
echo 'the engine caught fire' >&2
exit 1
"""


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_BROKERS", "DATABASE_URL", "REDIS_URL", "JAVA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    place = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(folders, "private_root", lambda _: place)
    processes = set(children(os.getpid()))
    yield
    assert set(children(os.getpid())) == processes
    assert not list(place.glob("run-*"))


def test_a_port_the_user_named_and_somebody_has() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} for redis is already in use") as refused:
            start(["postgres", "redis"], say=said.append, ports={"redis": port})
    assert "name another port" in str(refused.value)
    assert said == []


def test_a_broker_that_dies_takes_the_services_before_it_along(tmp_path: Path) -> None:
    path = _path_with(tmp_path, java=BROKEN_JAVA)
    jars = tmp_path / "cache/oncebox/kafka-4.3.1"
    jars.mkdir(parents=True)
    environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.raises(ServiceUnavailable, match="kafka ended while starting") as failed:
        start(["redis", "kafka"], say=_ignore, environment=environment)
    assert failed.value.service == "kafka"
    assert "the engine caught fire" in str(failed.value)


@pytest.mark.parametrize(
    ("programs", "problem"),
    [
        ({}, "Java was not found"),
        ({"java": "#!/bin/sh\nexit 3\n"}, "does not work"),
        ({"java": "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n"}, "is Java 11, Kafka needs 17"),
        ({"java": BROKEN_JAVA}, "Maven .* was not found"),
        ({"java": BROKEN_JAVA, "mvn": "#!/bin/sh\necho '[ERROR] no network'; exit 1\n"}, "no network"),
    ],
)
def test_without_java_maven_and_docker_the_message_says_what_to_install(
    tmp_path: Path, programs: dict[str, str], problem: str
) -> None:
    environment = {**os.environ, "PATH": _path_with(tmp_path, **programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.raises(ServiceUnavailable, match=problem) as missing:
        start(["kafka"], say=_ignore, environment=environment, kafka_options=KafkaOptions(real=True))
    for way in ("Java 17", "Maven", "Docker", "KAFKA_BOOTSTRAP_SERVERS"):
        assert way in str(missing.value)
    assert not any((tmp_path / "cache/oncebox").glob("run-*"))


def test_a_data_folder_serves_one_stack_at_a_time(tmp_path: Path) -> None:
    with (
        start(["redis"], say=_ignore, data=tmp_path),
        pytest.raises(ConfigError, match="used by another running stack"),
    ):
        start(["redis"], say=_ignore, data=tmp_path)


def test_an_unknown_service_is_refused() -> None:
    with pytest.raises(ConfigError, match="mysql is not a service"):
        start(["mysql"], say=_ignore)


def _path_with(folder: Path, **programs: str) -> str:
    """A PATH with these programs, a shell's basics, and neither Java nor Maven nor Docker."""
    place = folder / "bin"
    place.mkdir()
    for name, text in programs.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return str(place)


def _ignore(_: str) -> None:
    """Progress is not what these tests look at."""
