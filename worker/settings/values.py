"""The kinds of value a setting can have, as people write them: durations, sizes, lists, URLs.

Each kind accepts text, because variables and files carry text, and refuses with words that say what to write.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from worker.rules.durations import DurationError, duration


@dataclass(frozen=True, slots=True)
class Env:
    """How a field is spelled as variables, the first being the name that messages use; without it: prefix + field."""

    names: tuple[str, ...]
    keeps_empty: bool = False
    """An empty variable counts as a value; everywhere else it counts as not set."""
    from_file: bool = False
    """The value may also be read from a file; true for every secret without saying so."""


def env(*names: str, keeps_empty: bool = False, from_file: bool = False) -> Env:
    """Name the variables of a field."""
    return Env(names, keeps_empty, from_file)


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG]i?[bB]|[bB])?\s*")
_POWER = {"k": 1, "m": 2, "g": 3}
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_BROKER = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\s:/@\[\],]+)(?::(\d{1,5}))?")
_TOPIC_PART = re.compile(r"[A-Za-z0-9._-]{1,200}")


def size(value: object) -> object:
    """Bytes, from a number or from 64MiB, 256KiB, 1MB."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None:
        raise ValueError("not a size: write 64MiB, 256KiB or a number of bytes")
    unit = (match[2] or "b").lower()
    factor = 1 if unit == "b" else (1024 if "i" in unit else 1000) ** _POWER[unit[0]]
    return int(float(match[1]) * factor)


def _duration(value: object) -> timedelta:
    if isinstance(value, (str, int, timedelta)):
        with suppress(DurationError):
            return duration(value)
    raise ValueError("not a duration: write 500ms, 30s, 1h30m, 14d or whole seconds")


def between(low: str, high: str | None = None) -> AfterValidator:
    """Bounds on a duration, said in the words of a duration."""

    def check(value: timedelta) -> timedelta:
        if value < duration(low):
            raise ValueError(f"too short: at least {low}")
        if high is not None and value > duration(high):
            raise ValueError(f"too long: at most {high}")
        return value

    return AfterValidator(check)


def _items(value: object) -> object:
    if isinstance(value, str):
        return tuple(item for item in (part.strip() for part in value.split(",")) if item)
    return tuple(value) if isinstance(value, list) else value


def _broker(value: str) -> str:
    match = _BROKER.fullmatch(value)
    if match is None or not 0 < int(match[2] or 9092) < 65536:
        raise ValueError(f"{value!r} is not a broker: write host:port, several separated by commas, without a scheme")
    return value if match[2] else f"{value}:9092"


def _brokers(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(_broker(item) for item in value)


def _identifier(value: str) -> str:
    if not _IDENTIFIER.fullmatch(value) or value.startswith("pg_"):
        raise ValueError("not a plain name: lower-case letters, digits and _, at most 63, not beginning with pg_")
    return value


def _topic_part(value: str) -> str:
    if not _TOPIC_PART.fullmatch(value):
        raise ValueError("not part of a topic name: letters, digits, dot, dash and _")
    return value


def _start(value: object) -> object:
    if isinstance(value, str) and value.lower() in ("earliest", "latest"):
        return value.lower()
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise ValueError("write earliest, latest or a time like 2026-01-31T08:00:00Z")
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone: write {moment.isoformat()}Z for UTC, or its offset")
    return moment


def lowered(value: object) -> object:
    """Case never matters for a word from a list."""
    return value.strip().lower() if isinstance(value, str) else value


def uppered(value: object) -> object:
    """Case never matters for a protocol name."""
    return value.strip().upper() if isinstance(value, str) else value


def url_of(*schemes: str, example: str) -> AfterValidator:
    """A URL of one of these schemes that names a host; its text never appears in the refusal."""

    def check(value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        try:
            scheme = urlsplit(text).scheme
            _ = urlsplit(text).port
        except ValueError as error:
            raise ValueError(f"not a URL ({_quiet(error)}): write {example}") from None
        if "://" not in text or scheme not in schemes:
            begins = f"begins with {scheme}://" if scheme and "://" in text else "has no scheme"
            raise ValueError(f"{begins}: write {example}")
        return value

    return AfterValidator(check)


def _quiet(error: ValueError) -> str:
    # The library's text quotes the piece it could not read, and that can be half a password with a / in it.
    return (
        "its port is not a number; a password with / @ # or a colon needs %2F %40 %23 %3A"
        if "ort" in str(error)
        else "unreadable"
    )


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Size = Annotated[int, BeforeValidator(size)]
Items = Annotated[tuple[str, ...], BeforeValidator(_items)]
Brokers = Annotated[tuple[str, ...], AfterValidator(_brokers), BeforeValidator(_items)]
Identifier = Annotated[str, AfterValidator(_identifier)]
TopicPart = Annotated[str, AfterValidator(_topic_part)]
Start = Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(_start)]
