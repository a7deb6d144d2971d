"""Records from a file: one JSON object a line, as kcat -J writes records, or as a provider exports its events."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from worker.rules.paths import Path
from worker.rules.reasons import Refused
from worker.rules.record import Record

_ENVELOPE: Final = frozenset({"topic", "partition", "offset", "payload"})
_TYPES: Final = {"create": 0, "logappend": 1}
# Numbers above it are milliseconds: as seconds they would lie beyond the year 5000.
_MOST_SECONDS: Final = 100_000_000_000
LONGEST: Final = 64 * 1024 * 1024


class Malformed(Exception):
    """A line that is no record; the text says why."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A record of a file, and when its event happened, if the file says so."""

    record: Record
    at: int | None


def read_line(line: bytes, *, topic: str, number: int, time: Path | None) -> Exported:
    """One line as a record: its position is its place in the file. Raises `Malformed`."""
    if len(line) > LONGEST:
        raise Malformed(f"it is longer than {LONGEST} bytes")
    try:
        parsed = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"it is not JSON: {error.msg}") from None
    if not isinstance(parsed, dict):
        raise Malformed(f"it is {type(parsed).__name__}, not an object")
    if parsed.keys() >= _ENVELOPE:
        return _from_kcat(parsed, topic, number)
    at = None if time is None else _time(time, parsed)
    return Exported(Record(topic, 0, number, at or 0, value=line), at)


def _from_kcat(parsed: dict[str, Any], topic: str, number: int) -> Exported:
    time = parsed.get("ts")
    at = time if isinstance(time, int) and time >= 0 and parsed.get("tstype") != "unknown" else None
    record = Record(
        topic,
        0,
        number,
        at or 0,
        _TYPES.get(parsed.get("tstype", ""), 0),
        key=_bytes(parsed.get("key"), "key"),
        value=_bytes(parsed["payload"], "payload"),
        headers=_headers(parsed.get("headers") or []),
    )
    return Exported(record, at)


def _bytes(value: object, name: str) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return _encoded(value, name)
        case dict() | list():
            # kcat unpacks some formats itself.
            return orjson.dumps(value)
    raise Malformed(f"its {name} is {type(value).__name__}")


def _headers(given: object) -> tuple[tuple[str, bytes | None], ...]:
    """kcat writes names and values in turn."""
    if not isinstance(given, list) or len(given) % 2 or not all(isinstance(name, str) for name in given[::2]):
        raise Malformed("its headers are not names and values in turn")
    return tuple((name, _bytes(value, "header")) for name, value in zip(given[::2], given[1::2], strict=True))


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Malformed(f"its {name} is no text") from None


def _time(path: Path, parsed: dict[str, Any]) -> int | None:
    """Seconds, milliseconds or ISO 8601 with a zone; anything else is no time."""
    try:
        value = path.find(parsed)
    except Refused:
        return None
    match value:
        case bool():
            return None
        case int() | float() if 0 < value < 100_000 * _MOST_SECONDS:
            return round(value if value >= _MOST_SECONDS else value * 1000)
        case str():
            return _written(value)
    return None


def _written(text: str) -> int | None:
    try:
        time = datetime.fromisoformat(text)
        return None if time.tzinfo is None else round(time.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
