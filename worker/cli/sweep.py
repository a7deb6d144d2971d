"""`oncebox sweep`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.acting import AsJson
from worker.cli.options import Config, Registries

if TYPE_CHECKING:
    from worker.app.sweeping import Swept


def sweep(
    registries: Registries = None,
    config: Config = None,
    once: Annotated[bool, typer.Option("--once", help="Do everything once and exit: for cron.")] = False,
    prune_only: Annotated[
        bool, typer.Option("--prune-only", help="Only delete what has expired, once, and exit.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Clean up as every worker does: prune, end dead sessions, settle their claims; with handlers, run what is due.

    Without --once or --prune-only it goes on until it is told to stop.
    """
    from worker.cli.loading import load_registry
    from worker.settings import load_settings

    settings = load_settings(config)
    names = registries or settings.engine.handlers
    registry = load_registry(names) if names and not prune_only else None

    from worker.app.sweeping import sweep as sweep_ledger

    tell = _print_json if as_json else _print
    return sweep_ledger(settings, registry, once=once, prune_only=prune_only, tell=tell)


def _fields(swept: "Swept") -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(swept), "ok": swept.exit_code == 0 and not swept.interrupted}


def _print_json(swept: "Swept") -> None:
    from worker.cli.acting import print_json

    print_json(_fields(swept))


def _print(swept: "Swept") -> None:
    from worker.cli.acting import print_fields, print_table

    if swept.pruned:
        rows = [(p.operation, p.entries, p.kept_for_now, p.horizon, _held_by(p)) for p in swept.pruned]
        print_table(("operation", "pruned", "kept for now", "horizon", "held back by"), rows)
    print_fields(
        {
            "entries pruned": sum(p.entries for p in swept.pruned),
            "sessions ended": swept.sessions_ended,
            "claims settled": _counts(swept.claims_settled),
            "parked records tried": swept.parked_tried,
            "old rows deleted": _counts(swept.forgotten),
            "interrupted": "yes: run it again" if swept.interrupted else None,
        }
    )


def _held_by(pruned: Any) -> str | None:
    if not pruned.holds:
        return None
    first = min(pruned.holds, key=lambda hold: (hold.since is not None, hold.since))
    since = f" since {first.since:%Y-%m-%d %H:%M:%S}" if first.since else ""
    more = f" (and {len(pruned.holds) - 1} more)" if len(pruned.holds) > 1 else ""
    return f"{first.feed}{since}: {first.why}{more}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "0"
