"""Lengths of time as people write them: 30s, 5m, 1h30m, 14d."""

import re
from datetime import timedelta
from math import isnan
from typing import Final

from worker.errors import ConfigError

_UNITS: Final = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}
_FORM: Final = re.compile("".join(rf"(?:([0-9]+){unit})?" for unit in _UNITS), re.ASCII)
_WRITTEN: Final = ("d", "h", "m", "s", "ms", "us")
_ADVICE: Final = 'Write it as "30s", "5m", "1h30m" or "14d" (w, d, h, m, s, ms, us, largest first), or as seconds.'


class DurationError(ConfigError, ValueError):
    """A length of time that cannot be read; `value` is what was given."""

    def __init__(self, value: object, problem: str) -> None:
        super().__init__(f"{value!r} is not a duration: {problem}", advice=_ADVICE)
        self.value = value


def duration(value: str | float | timedelta) -> timedelta:
    """Read a length of time; a number is seconds, and nothing is negative."""
    try:
        length = _length(value)
    except OverflowError:
        raise DurationError(value, "it is too long") from None
    if length is None:
        raise DurationError(value, "the form is unknown")
    if length < timedelta(0):
        raise DurationError(value, "it is negative")
    return length


def format_duration(length: timedelta) -> str:
    """Write a length of time in the form `duration` reads back unchanged."""
    parts = []
    rest = length
    for unit in _WRITTEN:
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _length(value: object) -> timedelta | None:
    match value:
        case timedelta():
            return value
        case bool():
            return None
        case int() | float() if not isnan(value):
            return timedelta(seconds=value)
        case str():
            return _written(value.strip())
    return None


def _written(text: str) -> timedelta | None:
    if text.isascii() and text.isdigit():
        text += "s"
    match = _FORM.fullmatch(text)
    if not text or match is None or len(text) > 100:
        return None
    counts = zip(_UNITS.values(), match.groups(), strict=True)
    return sum((unit * int(count) for unit, count in counts if count is not None), timedelta(0))
