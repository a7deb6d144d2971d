"""What handlers logged, kept for the test."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Logged:
    """One line of `context.log`."""

    level: str
    event: str
    fields: dict[str, Any]


class Log:
    """The logger a handler finds in its context: `log.info("charged", receipt=…)`, `log.bind(…)`."""

    def __init__(self, lines: list[Logged], fields: dict[str, Any]) -> None:
        self._lines = lines
        self._fields = fields

    def bind(self, **fields: Any) -> "Log":
        return Log(self._lines, {**self._fields, **fields})

    def log(self, level: str, event: str, **fields: Any) -> None:
        self._lines.append(Logged(level, event, {**self._fields, **fields}))

    def debug(self, event: str, **fields: Any) -> None:
        self.log("debug", event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        self.log("info", event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        self.log("warning", event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        self.log("error", event, **fields)

    def exception(self, event: str, **fields: Any) -> None:
        self.log("error", event, **fields)

    def critical(self, event: str, **fields: Any) -> None:
        self.log("critical", event, **fields)
