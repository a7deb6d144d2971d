"""A record described in JSON: as `kcat -J` writes it, or as {"topic", "headers", "key", "value"}."""

from typing import Any

from worker.errors import UsageError
from worker.rules.canonical import exact_canonical
from worker.rules.document import Document
from worker.rules.reasons import Refused
from worker.rules.record import Record

_TYPES = {"create": 0, "logappend": 1}
_FORM = 'it is what `kcat -J` writes, or {"topic": …, "headers": {…}, "key": …, "value": …}'


def read_described(text: bytes) -> Record:
    """The record; UsageError says what of the description cannot be one."""
    try:
        found = Document(text).json
    except Refused as refused:
        raise _wrong(refused.detail.replace("the value", "the record")) from None
    if not isinstance(found, dict):
        raise _wrong(f"the record is {type(found).__name__}, not an object")
    topic = found.get("topic")
    if not isinstance(topic, str) or not topic:
        raise _wrong("the record has no topic")
    return Record(
        topic=topic,
        partition=_number(found, "partition"),
        offset=_number(found, "offset"),
        timestamp=_number(found, "ts"),
        timestamp_type=_TYPES.get(str(found.get("tstype")), 0),
        key=_bytes("key", found.get("key")),
        value=_bytes("value", found.get("payload") if "payload" in found else found.get("value")),
        headers=_headers(found.get("headers")),
    )


def _number(found: dict[str, Any], name: str) -> int:
    value = found.get(name, 0)
    if type(value) is not int:
        raise _wrong(f"{name} is {type(value).__name__}, not a whole number")
    return value


def _bytes(name: str, value: Any) -> bytes | None:
    """Text as UTF-8; JSON that was not put into a string as its canonical text, with every digit."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise _wrong(f"{name} is no text") from None
    return exact_canonical(value)


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    """An object, a list of pairs, or names and values in turn."""
    pairs: list[Any]
    match value:
        case None:
            return ()
        case dict():
            pairs = list(value.items())
        case list() if all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            pairs = value
        case list() if len(value) % 2 == 0:
            pairs = list(zip(value[::2], value[1::2], strict=True))
        case _:
            raise _wrong("headers are neither an object, nor pairs, nor names and values in turn")
    if not all(isinstance(name, str) for name, _ in pairs):
        raise _wrong("a header has no name")
    return tuple((name, _bytes(f"header {name}", content)) for name, content in pairs)


def _wrong(problem: str) -> UsageError:
    return UsageError(f"{problem}\n  {_FORM}")
