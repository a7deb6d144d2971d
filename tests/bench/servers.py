"""How much CPU the servers of the stack have used, children included, also those that have ended."""

from collections.abc import Mapping
from contextlib import suppress

import psutil


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU so far, by service, in user and kernel mode."""
    return {name: _tree(psutil.Process(pid)) for name, pid in pids.items()}


def _tree(root: psutil.Process) -> float:
    times = root.cpu_times()
    # A server's child that ended is counted by its parent: Postgres has a process per connection.
    total = times.user + times.system + times.children_user + times.children_system
    for child in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            its = child.cpu_times()
            total += its.user + its.system
    return total
