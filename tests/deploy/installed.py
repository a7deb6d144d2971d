"""The wheel built from this repository, in an environment that holds nothing but what the image's lock names."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.deploy.folder import DEPLOY, run

NOBODY = 10001
"""The image's user: no name, no home, no group that anything belongs to."""


@dataclass(frozen=True)
class Installed:
    """An environment and a folder of handlers, both read-only, used by somebody who is not root."""

    wheel: Path
    environment: Path
    folder: Path

    @property
    def python(self) -> Path:
        """Where a copy of the interpreter is, if one was needed."""
        return self.environment.parent / "python"

    @property
    def packages(self) -> Path:
        return next(self.environment.glob("lib/python*/site-packages"))

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A program of the environment, with these variables and no others; root becomes nobody for it."""
        program = self.environment / "bin" / command[0]
        root = os.getuid() == 0
        # A copied Python looks for its library where the original was, and that is closed to nobody.
        found = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LD_LIBRARY_PATH": str(self.python / "lib")}
        return subprocess.run(
            [str(program), *command[1:]],
            cwd=self.folder,
            env={**found, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            user=NOBODY if root else None,
            group=NOBODY if root else None,
            extra_groups=[] if root else None,
        )


def install(place: Path, handlers: dict[str, str]) -> Installed:
    """Build, install beside copies of the locked packages, write the handlers, and take away every right to write."""
    made = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place / "wheel")
    assert made.returncode == 0, made.stderr
    (wheel,) = (place / "wheel").glob("*.whl")
    installed = Installed(wheel, place / "environment", place / "site")
    made = run(_interpreter(place / "python"), "-m", "venv", "--without-pip", installed.environment)
    assert made.returncode == 0, made.stderr
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", installed.environment / "bin/python")
    made = run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
    assert made.returncode == 0, made.stderr
    for name in locked():
        _copy(name, installed.packages)
    for path, text in handlers.items():
        (installed.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (installed.folder / path).write_text(text)
    _make_read_only(place)
    return installed


def _interpreter(place: Path) -> Path:
    """This Python, or a copy of it where nobody else may enter its folder (one in the home of root)."""
    base, name = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    if os.getuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in (base, *base.parents)):
        return Path(sys.executable)
    left_out = shutil.ignore_patterns("site-packages", "*.opt-?.pyc", "test", "tests", "config-*", "idlelib", "tkinter")
    shutil.copytree(base / "lib" / name, place / "lib" / name, ignore=left_out)
    (place / "bin").mkdir()
    shutil.copy2((base / "bin" / name).resolve(), place / "bin" / name)
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy2(library, place / "lib")
    return place / "bin" / name


def locked() -> list[str]:
    """The packages of the image that belong on this machine."""
    lines = (DEPLOY / "image/runtime.lock").read_text().splitlines()
    wanted = [Requirement(line.rstrip("\\ ")) for line in lines if "==" in line]
    return [one.name for one in wanted if one.marker is None or one.marker.evaluate()]


def _copy(name: str, packages: Path) -> None:
    """A package as the tests' own environment has it: the locks name the same version and hashes."""
    found = distribution(name)
    for entry in {path.parts[0] for path in found.files or () if path.parts[0] != ".."}:
        source = Path(str(found.locate_file(entry)))
        if source.is_dir():
            shutil.copytree(source, packages / entry, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy2(source, packages)


def _make_read_only(place: Path) -> None:
    for path in (place, *place.rglob("*")):
        if not path.is_symlink():
            path.chmod((path.stat().st_mode | 0o444 | (0o111 if path.is_dir() else 0)) & ~0o222)


def make_removable(place: Path) -> None:
    for path in (place, *place.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
