"""Where the stack writes: a cache, a state folder, and temporary folders that no crash can leave for ever.

A lock says who owns a folder. The kernel drops it with the process, SIGKILL included, so the next
start removes exactly the folders whose owner is gone.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from worker.errors import ConfigError

_LOCK = ".owner"


def cache(environment: Mapping[str, str]) -> Path:
    return _xdg(environment, "XDG_CACHE_HOME", ".cache")


def state(environment: Mapping[str, str]) -> Path:
    return _xdg(environment, "XDG_STATE_HOME", ".local/state")


def _xdg(environment: Mapping[str, str], variable: str, below_home: str) -> Path:
    named = environment.get(variable, "")
    home = Path(environment.get("HOME") or Path.home())
    folder = (Path(named) if named.startswith("/") else home / below_home) / "oncebox"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot create {folder}: {error.strerror}", setting=variable, advice=f"set {variable} to a writable folder"
        ) from error
    return folder


class Owned:
    """A folder that is ours while we live; `release` gives it back and may remove it."""

    def __init__(self, path: Path, lock: int, *, temporary: bool) -> None:
        self.path = path
        self._lock: int | None = lock
        self._temporary = temporary

    def release(self) -> None:
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        if self._temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(lock)


def own(path: Path) -> Owned:
    """Take a folder that is kept between runs; refused while another stack runs on it."""
    path.mkdir(parents=True, exist_ok=True)
    lock = _try_lock(path)
    if lock is None:
        raise ConfigError(
            f"the data folder {path} is used by another running stack",
            advice="stop that one (oncebox stack down), or name another folder",
        )
    return Owned(path, lock, temporary=False)


def temporary() -> Owned:
    """A new temporary folder of ours, after removing those whose owner is gone."""
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
    # Root's servers run as nobody, who must be able to reach them.
    place = next(filter(passable, places), places[0]) if os.getuid() == 0 else places[0]
    return _new(private_root(place))


@contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """A temporary folder on the same file system as `parent`, so that its contents can be renamed into it."""
    folder = _new(parent)
    try:
        yield folder.path
    finally:
        folder.release()


def _new(root: Path) -> Owned:
    # Both steps under one lock: a sweeper must never see a new folder before its owner has locked it.
    with locked(root):
        _sweep(root)
        path = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=root))
        path.chmod(0o711)
        lock = _try_lock(path)
    assert lock is not None
    return Owned(path, lock, temporary=True)


def _sweep(root: Path) -> None:
    for folder in root.glob("run-*"):
        lock = _try_lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def passable(folder: Path) -> bool:
    """Everybody may pass through this folder and all above it."""
    steps = [folder.resolve(), *folder.resolve().parents]
    return folder.is_dir() and all(step.stat().st_mode & stat.S_IXOTH for step in steps)


def private_root(parent: Path) -> Path:
    """One folder per user in a place everybody can write; a stranger's folder of that name is refused."""
    root = parent / f"oncebox-{os.getuid()}"
    root.mkdir(mode=0o711, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        problem = f"{root} belongs to somebody else"
        raise ConfigError(problem, setting="TMPDIR", advice="set TMPDIR to a folder of yours")
    root.chmod(0o711)
    return root


def _try_lock(folder: Path) -> int | None:
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until the folder is ours alone, for the length of a block."""
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
