"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("oncebox")
except PackageNotFoundError:  # run from a source tree that was not installed
    VERSION = "0+source"
