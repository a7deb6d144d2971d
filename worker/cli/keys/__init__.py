"""`oncebox keys`: look at entries, and decide about those that nobody else can decide about."""

import typer

from worker.cli.keys.explain import explain
from worker.cli.keys.listing import list_entries
from worker.cli.keys.release import release
from worker.cli.keys.resolve import resolve
from worker.cli.keys.show import show

app = typer.Typer(
    help="Look at idempotency keys: what was done, what is in doubt, who has a claim; settle and release them.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(show)
app.command("list")(list_entries)
app.command()(resolve)
app.command()(release)
app.command()(explain)
