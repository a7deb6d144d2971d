"""Structured logs: JSON for machines, pretty on a terminal; the clients' logs in the same form."""

import logging
import sys
from typing import Any

import structlog

from worker.settings import LogSettings

_SHARED: list[Any] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def configure(settings: LogSettings) -> None:
    """Send every log line of this process to standard error in one form."""
    pretty = settings.format == "pretty" or (settings.format == "auto" and sys.stderr.isatty())
    last: Any = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if pretty else _json
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.level.upper())
    logging.getLogger("aiokafka").setLevel(logging.WARNING)


def notice(event: str, **fields: Any) -> None:
    """One decision of the engine: an error if someone must look, a warning if something broke, else information."""
    log = structlog.stdlib.get_logger("oncebox")
    if "alert" in fields:
        log.error(event, **fields)
    elif "error" in fields:
        log.warning(event, **fields)
    else:
        log.info(event, **fields)


_json = structlog.processors.JSONRenderer(sort_keys=False, default=str)
