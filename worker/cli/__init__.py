"""The command line: one file per verb, one way to report an error.

Owns exit codes and what people see; every decision is made below it. A verb's module is imported when the verb is
used, and imports what it needs inside its functions, so that the others start fast.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from worker.cli.verbs import Verbs
from worker.errors import OnceboxError

# typer keeps its copy of click private; the root of its errors is reached through a public one.
_ComplaintAboutUsage: type[Exception] = typer.BadParameter.__mro__[2]
_USAGE = 64

app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Exit codes: 0 done, 1 failed, 64 the command line is wrong, 69 Kafka, Postgres or Redis does not answer, "
        "78 a setting or a handler's registration is wrong."
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from worker.cli.version import version

        version()
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (also ONCEBOX_DEBUG=1).")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run each Kafka message's handler once, and answer every redelivery from the stored result."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(_USAGE)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: run a verb, report an error in one message, exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run(words))


def _run(words: list[str]) -> int:
    options = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in options or os.environ.get("ONCEBOX_DEBUG", "") not in ("", "0")
    # It may stand anywhere, also behind the verb, which does not know it.
    words = [word for place, word in enumerate(words) if word != "--debug" or place >= len(options)]
    try:
        code = app(args=words, prog_name="oncebox", standalone_mode=False)
    except OnceboxError as error:
        if debug:
            raise
        return _report(str(error), error.exit_code)
    except _ComplaintAboutUsage as error:
        text = _usage_text(error)
        return _report(text, _USAGE) if text else _USAGE
    except typer.Abort:
        return _report("stopped", 1)
    except Exception as error:
        if debug:
            raise
        text = f"{type(error).__name__}: {error}".rstrip(": ")
        return _report(f"unexpected {text}\n  run it again with --debug to see where it comes from", 1)
    return code if isinstance(code, int) else 0


def _report(text: str, code: int) -> int:
    sys.stdout.flush()
    print(f"oncebox: {text}", file=sys.stderr)
    return code


def _usage_text(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    verb = context.command_path if context is not None else "oncebox"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    # A group without a verb has shown its help already.
    return f"{message}\n  `{verb} --help` shows what it takes" if message else ""
