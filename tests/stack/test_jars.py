"""Kafka's jars: fetched once, all or nothing, whoever else fetches at the same time."""

import os
from pathlib import Path

import pytest

from worker.stack import jars
from worker.stack.service import KafkaOptions, Request

# Answers like Maven: finds -DoutputDirectory and puts a jar there, and writes down that it was called.
MAVEN = """#!/bin/sh
for word in "$@"; do case $word in -DoutputDirectory=*) out=${word#*=};; esac; done
mkdir -p "$out" && echo jar > "$out/kafka_2.13-4.3.1.jar"
echo "$@" >> "$CALLS"
EXTRA
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path


def test_the_second_call_needs_no_maven(home: Path) -> None:
    said: list[str] = []
    request = _request(home, said)
    found = jars.jars(request)
    assert [jar.name for jar in found.iterdir()] == ["kafka_2.13-4.3.1.jar"]
    assert "once" in said[0]
    assert jars.jars(request) == found
    assert len(_calls(home)) == 1
    assert "-Dmaven.repo.local=" in _calls(home)[0]
    assert sorted(path.name for path in found.parent.iterdir()) == [".owner", "kafka-4.3.1"]


def test_a_users_own_maven_repository_is_used(home: Path) -> None:
    (home / ".m2").mkdir()
    jars.jars(_request(home, []))
    assert "-Dmaven.repo.local=" not in _calls(home)[0]


def test_whoever_was_faster_wins_and_nobody_fails(home: Path) -> None:
    faster = f"mkdir -p {home}/.cache/oncebox/kafka-4.3.1 && echo first > {home}/.cache/oncebox/kafka-4.3.1/first.jar"
    found = jars.jars(_request(home, [], extra=faster))
    assert [jar.name for jar in found.iterdir()] == ["first.jar"]
    assert not list(found.parent.glob("run-*"))


def _calls(home: Path) -> list[str]:
    return (home / "calls").read_text().splitlines()


def _request(home: Path, said: list[str], extra: str = "") -> Request:
    maven = home / "bin/mvn"
    maven.write_text(MAVEN.replace("EXTRA", extra))
    maven.chmod(0o755)
    return Request(
        say=said.append,
        environment={"HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}", "CALLS": str(home / "calls")},
        scratch=home,
        data=home,
        kept=False,
        durable=True,
        kafka=KafkaOptions(),
        ports={},
    )
