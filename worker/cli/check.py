"""`oncebox check`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.options import Config, Registries

if TYPE_CHECKING:
    from worker.cli.findings import Finding
    from worker.settings import Row


def check(
    registries: Registries = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Show the settings that hold and where they come from, and try Kafka, Postgres and Redis; changes nothing."""
    import asyncio

    from worker.cli.findings import look_at_everything
    from worker.cli.loading import load_registry
    from worker.settings import load_settings

    settings = load_settings(config)
    names = registries or settings.engine.handlers
    registry = load_registry(names) if names else None
    findings = asyncio.run(look_at_everything(settings, registry))
    # A wrong setting outweighs a service that is away: waiting will not help.
    code = max((finding.exit_code for finding in findings), default=0)
    (_print_json if as_json else _print_tables)(settings.effective(), findings, code)
    return code


def _print_json(rows: "Sequence[Row]", findings: "Sequence[Finding]", code: int) -> None:
    import json
    from dataclasses import asdict

    from worker.settings.show import NOTHING

    checks = [asdict(finding) for finding in findings]
    settings = [{**asdict(row), "value": None if row.value == NOTHING else row.value} for row in rows]
    print(json.dumps({"ok": code == 0, "exit_code": code, "settings": settings, "checks": checks}, indent=2))


def _print_tables(rows: "Sequence[Row]", findings: "Sequence[Finding]", code: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    settings = Table("setting", "value", "from", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        style = "dim" if row.source == "default" else ""
        settings.add_row(Text(row.name), Text(row.value, overflow="fold"), Text(row.source), style=style)
    console.print(settings)
    console.print()
    colours = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}
    checks = Table("", "checked", "found", box=None, pad_edge=False, header_style="bold")
    for finding in findings:
        found = Text(finding.detail, overflow="fold")
        if finding.advice:
            found.append(f"\n{finding.advice}", style="cyan")
        checks.add_row(Text(finding.state, style=colours[finding.state]), Text(finding.subject), found)
    console.print(checks)
