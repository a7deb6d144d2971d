"""A real Prometheus and promtool: found on this machine, or unpacked once from Debian's package, without root."""

import os
import shutil
from pathlib import Path

from tests.deploy.folder import absent, run
from worker.stack import folders

_PROGRAMS = ("prometheus", "promtool")


def program(name: str) -> str:
    """`prometheus` or `promtool`; the first call fetches both, and two first calls at once are harmless."""
    found = shutil.which(name)
    if found:
        return found
    home = folders.cache(os.environ) / "prometheus-debian"
    if not home.is_dir():
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            absent(f"{name} is not installed, and there is no apt-get to fetch it with")
        _fetch(home)
    return str(home / name)


def _fetch(home: Path) -> None:
    with folders.workshop(home.parent) as work:
        done = _download(work, private=False)
        if done:
            # A machine that never updated its package lists; ours are thrown away with the workshop.
            done = _download(work, private=True)
        packages = list(work.glob("prometheus_*.deb"))
        if not packages:
            absent(f"Debian's prometheus cannot be fetched: {done}")
        unpacked = run("dpkg-deb", "-x", packages[0], work / "unpacked")
        assert unpacked.returncode == 0, unpacked.stderr
        (work / "bin").mkdir()
        for name in _PROGRAMS:
            (work / "unpacked/usr/bin" / name).rename(work / "bin" / name)
        try:
            # All or nothing: whoever sees the name sees both programs.
            (work / "bin").rename(home)
        except OSError:
            if not home.is_dir():  # else another process was faster, with the same programs
                raise


def _download(work: Path, *, private: bool) -> str:
    """Ask apt, which checks the signature; say what went wrong."""
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
    if private:
        for folder in ("lists/partial", "cache/archives/partial"):
            (work / folder).mkdir(parents=True)
        apt += ["-o", f"Dir::State::lists={work / 'lists'}", "-o", f"Dir::Cache={work / 'cache'}"]
        updated = run(*apt, "update")
        if updated.returncode:
            return updated.stderr.strip()[-300:]
    done = run(*apt, "download", "prometheus", cwd=work)
    return "" if done.returncode == 0 else done.stderr.strip()[-300:]
