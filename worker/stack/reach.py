"""A kept folder that another user can reach. Root's home is closed to nobody, and root may not run PostgreSQL."""

import hashlib
import os
import shutil
from pathlib import Path

from worker.stack.folders import locked, passable, private_root


def reachable_home(wanted: Path, user: int | None) -> Path:
    """A folder owned by `user`: the wanted one, else one elsewhere that the wanted name then links to.

    The place elsewhere follows from the wanted name, so kept data is found again, and the link tells a reader where.
    """
    if user is None:
        wanted.mkdir(mode=0o700, exist_ok=True)
        return wanted
    home = wanted if not wanted.is_symlink() and passable(wanted.parent) else _elsewhere(wanted)
    home.mkdir(exist_ok=True)
    os.chown(home, user, user)
    home.chmod(0o700)
    return home


def _elsewhere(wanted: Path) -> Path:
    root = private_root(Path("/var/tmp"))  # noqa: S108
    home = root / f"kept-{hashlib.sha256(str(wanted).encode()).hexdigest()[:16]}"
    # Under a lock: a sweeper must not see a folder whose link is not there yet.
    with locked(root):
        _sweep(root)
        home.with_suffix(".link").write_text(str(wanted))
        home.mkdir(exist_ok=True)
        if not wanted.is_symlink():
            wanted.symlink_to(home)
    return home


def _sweep(root: Path) -> None:
    """Remove what no link leads to any more: its state folder was deleted by hand."""
    for note in root.glob("kept-*.link"):
        home = note.with_suffix("")
        if Path(note.read_text()).resolve() != home.resolve():
            shutil.rmtree(home, ignore_errors=True)
            note.unlink()
