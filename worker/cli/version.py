"""`oncebox version`."""

from worker.version import VERSION


def version() -> None:
    """Print the version."""
    print(f"oncebox {VERSION}")
