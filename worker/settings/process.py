"""The process itself: its HTTP port and its log."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from worker.settings.group import Group
from worker.settings.values import env, lowered


def _port(value: object) -> object:
    return None if lowered(value) in ("", "off", "none") else value


class HttpSettings(Group):
    """Probes and metrics."""

    env_prefix: ClassVar[str] = "ONCEBOX_HTTP_"

    host: str = "127.0.0.1"
    """0.0.0.0 lets the cluster's probes in, and everyone else who can reach the address: there is no password."""

    port: Annotated[
        Annotated[int, Field(ge=0, le=65535)] | None,
        BeforeValidator(_port),
        env("ONCEBOX_HTTP_PORT", keeps_empty=True),
    ] = 9464
    """0 takes a free one. Empty or off: no probes, no metrics."""


class LogSettings(Group):
    """What is written to standard error."""

    env_prefix: ClassVar[str] = "ONCEBOX_LOG_"

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lowered)] = "info"
    """debug writes several lines per record; error hides what the worker decided."""

    format: Annotated[Literal["auto", "json", "pretty"], BeforeValidator(lowered)] = "auto"
    """auto is pretty on a terminal and JSON elsewhere."""
