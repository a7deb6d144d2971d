"""`oncebox dlq`: dead letters, whoever wrote them: list, show, redrive, discard."""

import typer

from worker.cli.dlq.discard import discard
from worker.cli.dlq.looking import list_letters, show
from worker.cli.dlq.redrive import redrive

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Dead letters: list, show, redrive, discard; six dialects are read.",
)
app.command("list")(list_letters)
app.command()(show)
app.command()(redrive)
app.command()(discard)
