"""A handler's result, encoded once; the stored bytes are what every replay gives."""

from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from hashlib import sha256
from typing import Any, Literal

import orjson
from pydantic import BaseModel

from worker.rules.claims import Outcome, Status


class ContentType(IntEnum):
    """What the stored bytes are; the numbers are stored."""

    NONE = 0
    JSON = 1
    TEXT = 2
    BYTES = 3

    @property
    def mime(self) -> str:
        return _MIME[self]


_MIME = {
    ContentType.NONE: "",
    ContentType.JSON: "application/json",
    ContentType.TEXT: "text/plain; charset=utf-8",
    ContentType.BYTES: "application/octet-stream",
}


@dataclass(slots=True)
class Result:
    """What a completed entry holds; nobody changes it (a frozen one takes three times as long to make)."""

    status: Status
    content_type: ContentType
    body: bytes | None
    code: str | None = None


NOTHING = Result(Status.OK, ContentType.NONE, None)


def outcome_of(result: Result) -> Outcome:
    """What became of the record whose handler gave this result."""
    return Outcome.REJECTED if result.status is Status.REJECTED else Outcome.EXECUTED


Keep = Literal["bytes", "digest", "nothing"]


def encode_as(keep: Keep, value: Any, limit: int) -> Result:
    """Encode what was returned and keep of it what the scope wants kept."""
    return kept(keep, NOTHING if value is None else encode(value, limit))


def kept(keep: Keep, result: Result) -> Result:
    """What the scope wants kept of a result."""
    match keep:
        case "bytes":
            return result
        case "digest":
            body = None if result.body is None else sha256(result.body).hexdigest().encode()
            return Result(result.status, ContentType.TEXT, body, result.code)
        case "nothing":
            return Result(result.status, ContentType.NONE, None, result.code)


def encode(value: Any, limit: int) -> Result:
    """Encode what a handler returned; what cannot be stored becomes `unstorable`, because the effect happened."""
    match value:
        case None:
            return NOTHING
        case bytes() | bytearray() | memoryview():
            kind, body = ContentType.BYTES, bytes(value)
        case str():
            try:
                kind, body = ContentType.TEXT, value.encode()
            except UnicodeEncodeError as error:
                return unstorable(f"the text cannot be encoded: {error.reason}")
        case _:
            try:
                kind, body = ContentType.JSON, _json(value)
            except Exception as error:  # a user's serializer may raise anything, and the effect has happened
                return unstorable(f"{type(value).__name__} cannot be encoded as JSON: {error}")
    if len(body) > limit:
        return unstorable(f"{len(body)} bytes are more than the limit of {limit}")
    return Result(Status.OK, kind, body)


def rejected(message: str, code: str) -> Result:
    """The result of a business failure."""
    code = _clean(code).replace("\0", "?")
    return Result(Status.REJECTED, ContentType.JSON, orjson.dumps({"code": code, "message": _clean(message)}), code)


def unstorable(why: str) -> Result:
    """The result of a handler whose effect happened but whose answer cannot be kept."""
    return Result(Status.UNSTORABLE, ContentType.TEXT, _clean(why)[:500].encode())


def _json(value: Any) -> bytes:
    if isinstance(value, BaseModel):
        return value.model_dump_json().encode()
    return orjson.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Decimal) and value.is_finite():
        # A payload's number that no double carries goes out with every digit it came with.
        return orjson.Fragment(format(value, "f"))
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode()
