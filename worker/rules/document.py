"""A record's value as JSON, read at most once and without losing a digit.

orjson is the one judge of what is JSON. It rounds integers beyond 64 bits and decimals beyond a double, so a document
that holds such a number is read a second time with those numbers kept apart.
"""

import re
from typing import Any, Final

import orjson

from worker.rules.numbers import LONGEST, NUMBER, are_carried, exact_value, is_carried
from worker.rules.reasons import Refused

# orjson's words for a legal number such as 1E400; other wording would make such payloads undecodable, and a test fail.
_BEYOND_DOUBLE: Final = "number is infinity"

# Every byte as the part it plays in a number: a digit or a sign, what parts digits, or none. Most payloads hold neither
# a fraction nor an exponent nor a long number, and two quick looks at this are enough.
_ROUGH: Final = bytes(
    ord("0") if byte in b"0123456789+-"
    else ord(".") if byte in b".eE"
    else ord("x")
    for byte in range(256)
)  # fmt: skip
_PARTED: Final = b"0.0"

# Every byte as the part it plays around a number: a digit, its point, an exponent's e, what may stand before a number.
_SHAPE: Final = bytes(
    ord("0") if byte in b"0123456789"
    else ord(".") if byte == ord(".")
    else ord("e") if byte in b"eE"
    else ord(":") if byte in b" \t\r\n:,["
    else ord("x")
    for byte in range(256)
)  # fmt: skip
_LONG: Final = b"0" * 17
_BEFORE: Final = ord(":")
_MINUS: Final = ord("-")

_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[-+0-9.][-+0-9.eE]*+', re.DOTALL)


class Document:
    """The value of one record; made per record, shared by every rule that looks at it.

    `json` is the exact payload, int, float, or Decimal where a double would lose digits; reading it raises `Refused` if
    the value is not JSON. Of repeated names the last wins.
    """

    __slots__ = ("_refused", "has_floats", "is_plain", "json", "value")

    json: Any

    def __init__(self, value: bytes | None) -> None:
        self.value = value
        self.has_floats = False  # whether there may be a float or a Decimal; known once it is read
        self.is_plain = True  # whether no number needed more than orjson's own int or float; known once it is read
        self._refused: Refused | None = None

    def __getattr__(self, name: str) -> Any:
        # Called only for an empty slot: `json` before it is first read. Later reads cost what an attribute costs.
        if name != "json":
            raise AttributeError(name)
        if self._refused is not None:
            raise Refused(self._refused.reason, self._refused.detail)
        try:
            self.json = json = self._parse()
        except Refused as refused:
            self._refused = refused
            raise
        return json

    def _parse(self) -> Any:
        value = self.value
        if value is None:
            raise Refused("invalid_payload", "the record has no value")
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            if _BEYOND_DOUBLE in error.msg:
                self.has_floats = True
                self.is_plain = False
                return _parse_apart(value)
            raise Refused("undecodable", f"the value is not JSON: {error}") from None
        rough = value.translate(_ROUGH)
        if rough.find(_PARTED) < 0 and rough.find(_LONG) < 0:
            return parsed
        return self._parse_again(value, parsed)

    def _parse_again(self, value: bytes, parsed: Any) -> Any:
        """What was parsed, or the exact payload where that lost a digit."""
        shape = value.translate(_SHAPE)
        doubtful = []
        if b"0." in shape:
            # A point in a number counts as one more digit.
            shape = shape.replace(b".", b"0")
            self.has_floats = True
        if _LONG in shape:
            doubtful += _long_numbers(value, shape)
        if b"0e" in shape:
            doubtful += _exponential_numbers(value, shape)
        if doubtful:
            self.has_floats = True
        self.is_plain = not doubtful or are_carried(doubtful)
        return parsed if self.is_plain else _parse_apart(value)


def _long_numbers(value: bytes, shape: bytes) -> list[bytes]:
    """The numbers with more than 16 characters before an exponent; a look-alike inside a string only costs time.

    One with fewer and no exponent has at most 15 digits and a point, or 16 digits, and is carried.
    """
    found = []
    at = shape.find(_LONG)
    while at >= 0:
        start = at - 1 if value[at - 1] == _MINUS else at
        match = NUMBER.match(value, start)
        if match and (start == 0 or shape[start - 1] == _BEFORE):
            found.append(match[0])
        behind = match.end() if match else 0
        at = shape.find(_LONG, behind if behind > at + 17 else at + 17)
    return found


def _exponential_numbers(value: bytes, shape: bytes) -> list[bytes]:
    """The numbers with an exponent; a look-alike inside a string only costs time.

    Nothing inside a number may stand before one, so each stretch between such bytes is looked at once.
    """
    found = []
    at = shape.find(b"0e")
    while at >= 0:
        match = NUMBER.match(value, shape.rfind(b":", 0, at) + 1)
        if match and match.end() > at:
            found.append(match[0])
        end = shape.find(b":", at)
        at = shape.find(b"0e", end) if end >= 0 else -1
    return found


def _parse_apart(value: bytes) -> Any:
    """Parse with every number that orjson does not carry kept apart as text until the tree stands.

    Strings are marked as well, so that no string can pass for a number.
    """
    try:
        marked = orjson.loads(_TOKEN.sub(_mark, value))
    except orjson.JSONDecodeError as error:
        raise Refused("undecodable", f"the value is not JSON: {error.msg}") from None
    root = [marked]
    todo: list[Any] = [root]
    while todo:
        node = todo.pop()
        if type(node) is dict:
            items = list(node.items())
            node.clear()
            for name, item in items:
                node[name[1:]] = _unmark(item, todo)
        else:
            node[:] = [_unmark(item, todo) for item in node]
    return root[0]


def _mark(match: re.Match[bytes]) -> bytes:
    token = match[0]
    if token.startswith(b'"'):
        return b'"s' + token[1:]
    if NUMBER.fullmatch(token) is None or is_carried(token):
        return token
    if exact_value(token) is None:
        raise Refused("undecodable", f"a number takes more than {LONGEST} digits")
    return b'"n' + token + b'"'


def _unmark(item: Any, todo: list[Any]) -> Any:
    match item:
        case str() if item.startswith("n"):
            return exact_value(item[1:].encode())
        case str():
            return item[1:]
        case dict() | list():
            todo.append(item)
    return item
