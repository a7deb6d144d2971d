"""The table of verbs, and the group that imports a verb's module when it is needed."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from worker.errors import UsageError

VERBS = (
    "run",
    "demo",
    "stack",
    "migrate",
    "check",
    "sweep",
    "keys",
    "dlq",
    "replay",
    "jobs",
    "feeds",
    "pause",
    "resume",
    "skip",
    "version",
)
"""Each lives in `worker.cli.<verb>`: as `app`, a Typer with verbs of its own, or as a function of that name."""


class Verbs(TyperGroup):
    """Knows the names of all verbs and loads one at a time. A verb whose module is not installed does not exist."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [verb for verb in VERBS if find_spec(f"worker.cli.{verb}") is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in (known := self.list_commands(ctx)):
            from worker.settings.near import near

            advice = near(cmd_name, known, otherwise="`oncebox --help` lists the commands")
            raise UsageError(f"there is no command {cmd_name!r}\n  {advice}")
        module = import_module(f"worker.cli.{cmd_name}")
        own = getattr(module, "app", None)
        if own is None:
            own = typer.Typer(add_completion=False)
            own.command(cmd_name)(getattr(module, cmd_name))
        command = typer.main.get_command(own)
        command.name = cmd_name
        return command
