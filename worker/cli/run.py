"""`oncebox run`."""

from typing import Annotated

import typer

from worker.cli.options import Config, Registries


def run(
    registries: Registries = None,
    config: Config = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when everything that was there at the start is finished.")
    ] = False,
) -> int:
    """Run one worker of the group until it is told to stop."""
    from worker.cli.loading import load_registry
    from worker.settings import load_settings

    settings = load_settings(config)
    registry = load_registry(registries or settings.engine.handlers)

    from worker.app import run as run_worker

    return run_worker(settings, registry, until_idle=until_idle)
