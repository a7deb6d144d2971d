"""Structured logs: JSON for machines, pretty on a terminal; the clients' logs in the same form."""

import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from worker.settings import LogSettings

Fields = MutableMapping[str, Any]


def configure(settings: LogSettings, about: Callable[[], Fields | None] | None = None) -> None:
    """Send every log line of this process to standard error in one form.

    `about` says which message is handled where a line is written; it is asked only when a line is written.
    """
    pretty = settings.format == "pretty" or (settings.format == "auto" and sys.stderr.isatty())
    # Without a traceback's local variables: they hold payloads.
    last: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if pretty
        else structlog.processors.JSONRenderer(sort_keys=False, default=str)
    )
    shared: list[Any] = [
        *([] if about is None else [_About(about)]),
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.level.upper())
    logging.captureWarnings(True)
    logging.getLogger("aiokafka").setLevel(logging.WARNING)


def notice(event: str, **fields: Any) -> None:
    """One decision of the engine: an error if someone must look, a warning if something broke, else information.

    An event that comes by the hundred is written a few times and then counted; what someone must look at never is.
    """
    log = structlog.stdlib.get_logger("oncebox")
    if "alert" in fields:
        log.error(event, **fields)
        return
    hidden = _repeats.pass_on(event)
    if hidden is None:
        return
    if hidden:
        fields["suppressed_before"] = hidden
    if "error" in fields:
        log.warning(event, **fields)
    else:
        log.info(event, **fields)


def suppressed() -> int:
    """How many lines were counted instead of written."""
    return _repeats.suppressed


class Repeats:
    """Lets an event through so many times per period; callable from any thread, roughly right is enough."""

    def __init__(self, *, lines: int, period: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._period = period
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}
        self.suppressed = 0

    def pass_on(self, event: str) -> int | None:
        """None: do not write it. A number: write it, so many were not written since the last one that was."""
        now = self._clock()
        since, count = self._seen.get(event, (now, 0))
        hidden = 0
        if now - since >= self._period:
            hidden = max(0, count - self._lines)
            since, count = now, 0
        self._seen[event] = (since, count + 1)
        if count >= self._lines:
            self.suppressed += 1
            return None
        return hidden


class _About:
    """Adds what is known about the message that is handled; what the line itself says comes first."""

    def __init__(self, about: Callable[[], Fields | None]) -> None:
        self._about = about

    def __call__(self, logger: Any, method: str, event: Fields) -> Fields:
        known = self._about()
        if known:
            for name, value in known.items():
                event.setdefault(name, value)
        return event


_repeats = Repeats(lines=100, period=10.0)
