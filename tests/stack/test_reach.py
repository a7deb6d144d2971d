"""Root runs PostgreSQL as nobody, who can read neither root's home nor a virtual environment below it."""

import os
import shutil
from pathlib import Path

import pytest

from worker.stack import binaries, folders, reach
from worker.stack.process import Command, run
from worker.stack.service import KafkaOptions, Request

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root has this problem")


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_programs_that_nobody_cannot_read_are_copied(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = binaries._wheel()
    if wheel is None:
        pytest.skip("the wheel is not installed")
    package = wheel.parent.parent
    for part in (wheel.parent.relative_to(package.parent), Path(f"{package.name}.libs")):
        shutil.copytree(package.parent / part, closed / part, symlinks=True)
    monkeypatch.setattr(binaries, "_wheel", lambda: closed / wheel.relative_to(package.parent))
    scratch = folders.temporary()
    try:
        request = _request(scratch.path)
        found = binaries.find(request)
        assert found.folder.is_relative_to(scratch.path)
        assert found.user == binaries.NOBODY
        code, text = run(Command([found.folder / "initdb", "--version"], request.environment, Path("/"), found.user))
        assert code == 0, text
    finally:
        scratch.release()


def test_kept_data_below_a_closed_home_lives_elsewhere_and_goes_with_its_link(
    closed: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path_factory.mktemp("open")
    monkeypatch.setattr(reach, "private_root", lambda _: root)
    wanted = closed / "postgres"
    home = reach.reachable_home(wanted, binaries.NOBODY)
    assert home.parent == root
    assert home.stat().st_uid == binaries.NOBODY
    assert wanted.resolve() == home
    assert reach.reachable_home(wanted, binaries.NOBODY) == home

    wanted.unlink()
    other = reach.reachable_home(closed / "other", binaries.NOBODY)
    assert other.is_dir()
    assert not home.exists()


def _request(scratch: Path) -> Request:
    return Request(
        say=lambda _: None,
        environment={"PATH": "/nowhere"},
        scratch=scratch,
        data=scratch,
        kept=False,
        durable=True,
        kafka=KafkaOptions(),
        ports={},
    )
