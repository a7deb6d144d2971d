"""What the command line shows before anything is connected."""

import sys
from pathlib import Path

import pytest

from tests.cli.command import oncebox
from worker.cli.loading import load_registry
from worker.errors import RegistrationError
from worker.version import VERSION

MODULE = """
from worker.rules.registry import Registry
registry = Registry()

@registry.handler("{topic}", scope="jobs", key="id")
async def {name}(message: dict) -> None: ...
"""


def test_help_lists_the_verbs_and_the_exit_codes(tmp_path: Path) -> None:
    answer = oncebox("--help", cwd=tmp_path)
    assert answer.code == 0
    assert all(verb in answer.output for verb in ("run", "migrate", "check", "stack", "version"))
    words = " ".join(answer.output.split())
    assert all(f"{code} " in words.partition("Exit codes:")[2] for code in (0, 1, 64, 69, 78))


def test_every_verb_has_help_that_needs_no_settings(tmp_path: Path) -> None:
    for verb in ("run", "migrate", "check", "stack"):
        answer = oncebox(verb, "--help", cwd=tmp_path)
        assert answer.code == 0, answer
        assert "Usage: oncebox" in answer.output


def test_no_verb_at_all_shows_the_help_and_fails(tmp_path: Path) -> None:
    for words in ([], ["stack"]):
        answer = oncebox(*words, cwd=tmp_path)
        assert (answer.code, answer.error) == (64, "")
        assert "Usage: oncebox" in answer.output


def test_the_version_is_printed(tmp_path: Path) -> None:
    for words in (["version"], ["--version"]):
        answer = oncebox(*words, cwd=tmp_path)
        assert (answer.code, answer.output) == (0, f"oncebox {VERSION}\n")


def test_a_verb_that_needs_no_client_imports_none(tmp_path: Path) -> None:
    answer = oncebox("--version", cwd=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rpartition("|")[2].strip() for line in answer.error.splitlines()}
    assert "typer" in imported
    assert not imported & {"aiokafka", "asyncpg", "redis", "rich"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_several_registries_become_one(project: Path) -> None:
    (project / "face_one.py").write_text(MODULE.format(topic="a", name="first"))
    (project / "face_two.py").write_text(MODULE.format(topic="b", name="second"))
    both = load_registry(["face_one", "face_two:registry", "face_one"])
    assert both.topics == {"a", "b"}
    assert [handler.operation for handler in both.handlers] == ["first", "second"]
    alone = load_registry(["face_one"])
    assert alone is sys.modules["face_one"].registry
    assert alone.topics == {"a"}


def test_the_working_directory_comes_first(project: Path) -> None:
    (project / "this.py").write_text(MODULE.format(topic="mine", name="mine"))
    assert load_registry(["this"]).topics == {"mine"}
    assert sys.path[0] == str(project)


def test_registries_that_collide_are_refused(project: Path) -> None:
    (project / "face_three.py").write_text(MODULE.format(topic="a", name="same"))
    (project / "face_four.py").write_text(MODULE.format(topic="b", name="same"))
    with pytest.raises(RegistrationError, match="same"):
        load_registry(["face_three", "face_four"])
