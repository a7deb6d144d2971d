"""`oncebox stack`: Kafka, Postgres and Redis on this machine, left running until they are told to go."""

import json
import os
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from worker.stack.record import Record

app = typer.Typer(
    help="Local Kafka, Postgres and Redis: from the environment, from Docker, or as processes.",
    no_args_is_help=True,
    add_completion=False,
)

_Port = Annotated[int | None, typer.Option(min=1, max=65_535, help="A fixed port; otherwise a free one is found.")]


@app.command()
def up(
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget all data kept from earlier.")] = False,
    kafka_port: _Port = None,
    postgres_port: _Port = None,
    redis_port: _Port = None,
) -> None:
    """Start the stack, leave it running, and print the variables that lead to it.

    In a shell: eval "$(oncebox stack up)"
    """
    from worker.stack.detached import Detached

    named = {"kafka": kafka_port, "postgres": postgres_port, "redis": redis_port}
    ports = {name: port for name, port in named.items() if port is not None}
    running = Detached(os.environ).up(say=_tell, ports=ports, fresh=fresh)
    for variable, value in running.environment.items():
        print(f"export {variable}={shlex.quote(value)}")


@app.command()
def down() -> None:
    """Stop the stack and wait until it is gone; its data is kept."""
    from worker.stack.detached import Detached

    stopped = Detached(os.environ).down()
    _tell("stopped" if stopped else "not running")


@app.command()
def status(
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs; with the addresses, passwords included.")
    ] = False,
) -> None:
    """Say what runs; exit code 1 when nothing does."""
    from worker.stack.detached import Detached

    running = Detached(os.environ).find()
    if as_json:
        print(json.dumps(_described(running), indent=2))
    elif running is None:
        print("not running")
    else:
        for line in _lines(running):
            print(line)
    if running is None:
        raise typer.Exit(1)


def _described(running: "Record | None") -> dict[str, object]:
    if running is None:
        return {"running": False, "services": [], "environment": {}}
    ended = _ended(running)
    services = [{**asdict(service), "running": service.name not in ended} for service in running.services]
    return {
        "running": True,
        "supervisor": running.supervisor.pid,
        "services": services,
        "environment": dict(running.environment),
    }


def _lines(running: "Record") -> list[str]:
    ended = _ended(running)
    return [
        f"{service.name:<10}{'ended' if service.name in ended else 'running':<10}{service.how:<13}{service.why}"
        for service in running.services
    ]


def _ended(running: "Record") -> set[str]:
    return {process.name for process in running.processes if not process.alive}


def _tell(line: str) -> None:
    # Not on stdout: that is for the shell to evaluate.
    print(line, file=sys.stderr, flush=True)
