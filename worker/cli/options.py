"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Registries = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[REGISTRY]...",
        help="Where handlers are registered: module or module:attribute (default attribute: registry). "
        "Unset: ONCEBOX_HANDLERS.",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings file, YAML or TOML (also ONCEBOX_CONFIG).", show_default=False
    ),
]
