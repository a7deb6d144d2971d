"""What operators' verbs have in common: who acts, why, whether they are sure, and how answers are printed."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from worker.errors import UsageError

Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the audit.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def actor() -> str:
    """Who is acting, for the audit: ONCEBOX_ACTOR, or the user and host of this process."""
    import getpass
    import socket

    named = os.environ.get("ONCEBOX_ACTOR")
    if named:
        return named
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def given_reason(reason: str) -> str:
    """The reason, if there is one: an empty one says nothing to whoever reads the audit."""
    if not reason.strip():
        raise UsageError("--reason is empty\n  say why: it is kept in the audit")
    return reason.strip()


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is changed in bulk; without a terminal only --yes goes on."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is here to answer\n  add --yes if you are sure")
    if not typer.confirm(question):
        raise typer.Abort


def print_json(value: Any) -> None:
    """One JSON document; times as ISO 8601, bytes as text."""
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2) + b"\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows for people; nothing is cut off when the output is not a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 240
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(_shown(cell), overflow="fold") for cell in row))
    console.print(table)


def print_fields(fields: Mapping[str, Any]) -> None:
    """One thing, a line per field; fields without a value are left out."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        if value is not None:
            print(f"{name:{width}}  {_shown(value)}")


def _shown(value: Any) -> str:
    from datetime import datetime

    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return _plain(value) if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
