"""The image's recipe: linted, and made of what the locks say."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.deploy.folder import DEPLOY, ROOT, run, tool

DOCKERFILE = DEPLOY / "Dockerfile"
LOCKS = sorted((DEPLOY / "image").glob("*.lock"))


def pins(lock: Path) -> dict[str, tuple[str, ...]]:
    """Name -> version and hashes, as pip will ask for them."""
    blocks = re.split(r"^(?=\w)", lock.read_text().replace("\\\n", " "), flags=re.MULTILINE)
    return {words[0].partition("==")[0]: tuple(words) for words in map(str.split, blocks) if words}


def test_hadolint_finds_nothing() -> None:
    done = run(tool("hadolint"), DOCKERFILE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_the_image_installs_what_the_tests_ran_with(lock: Path) -> None:
    tested = pins(ROOT / "requirements-dev.lock")
    for name, pin in pins(lock).items():
        assert tested[name] == pin, "run: make lock"
        assert any(word.startswith("--hash=sha256:") for word in pin)


def test_the_locks_cover_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {Requirement(text).name for text in project["project"]["dependencies"]}
    assert wanted <= set(pins(DEPLOY / "image/runtime.lock")), "run: make lock"
    assert {"hatchling"} <= set(pins(DEPLOY / "image/build.lock"))


def test_nothing_for_tests_or_for_the_local_stack_is_in_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    unwanted = {Requirement(text).name for text in project["project"]["optional-dependencies"]["stack"]}
    unwanted |= {Requirement(text).name for text in project["dependency-groups"]["dev"]}
    assert not unwanted & set(pins(DEPLOY / "image/runtime.lock"))


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order, lines joined, comments left out."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(words[0], words[1]) for words in (line.split(maxsplit=1) for line in joined) if words]


def test_the_image_runs_as_nobody_with_signals_passed_on() -> None:
    final = instructions()[max(i for i, (word, _) in enumerate(instructions()) if word == "FROM") :]
    words = dict(final)
    assert words["USER"] == "10001:10001"
    assert words["ENTRYPOINT"] == '["tini", "--", "oncebox"]'
    assert words["CMD"] == '["run"]'
    assert "/livez" in words["HEALTHCHECK"]
    assert not re.search(r"\b(curl|wget)\b", DOCKERFILE.read_text())


def test_every_base_has_a_pinned_tag_and_no_registry() -> None:
    texts = [text for word, text in instructions() if word == "FROM"]
    assert texts == ["python:${PYTHON} AS build", "python:${PYTHON}"]
    (tag,) = [text for word, text in instructions() if word == "ARG"]
    assert re.fullmatch(r"PYTHON=\d+\.\d+\.\d+-slim-\w+", tag)


def test_the_build_sees_what_it_copies_and_nothing_else() -> None:
    """The ignore file is a list of exceptions: everything that is not copied stays outside."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:].rstrip("/") for line in lines if line.startswith("!")}
    sources = [
        word for name, text in instructions() if name == "COPY" and "--from" not in text for word in text.split()[:-1]
    ]
    copied = {source.rstrip("/") for source in sources}
    assert copied <= allowed
    assert allowed - copied == {"deploy"}
    assert "deploy/*" in lines
