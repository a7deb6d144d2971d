"""JSON numbers without loss: which ones orjson carries, and their one canonical text.

Two payloads must never look alike because a parser rounded a number. A number is therefore kept as its exact decimal
value, and written with the digits of that value in the layout of ECMAScript. Wherever the shortest form of the nearest
double is the exact value, that is the text RFC 8785 asks for, too.
"""

import re
from decimal import Decimal
from math import isfinite
from typing import Final

import orjson

# Without a limit a few bytes such as 1e999999999 would take all memory in whoever converts them to an int.
# This many digits every Python converts, however its own limit is set.
LONGEST: Final = 640

NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?+([eE][+-]?[0-9]++)?+")


def is_carried(token: bytes) -> bool:
    """Whether orjson's int or float for this JSON number has the exact value of the text."""
    try:
        carried = orjson.loads(token)
    except orjson.JSONDecodeError:
        return False
    if orjson.dumps(carried) == token:
        return True
    if not carried and not token.lower().partition(b"e")[0].strip(b"-0."):
        return True
    return exact_value(token) == (Decimal(repr(carried)) if type(carried) is float else carried)


def are_carried(tokens: list[bytes]) -> bool:
    """Whether orjson carries all these JSON numbers; quick when they are written as orjson would."""
    text = b"[%b]" % b",".join(tokens)
    try:
        return orjson.dumps(orjson.loads(text)) == text or all(map(is_carried, tokens))
    except orjson.JSONDecodeError:
        return False


def exact_value(token: bytes) -> int | Decimal | None:
    """The exact value of a JSON number, or None when writing it out takes more than LONGEST digits."""
    match = NUMBER.fullmatch(token)
    if match is None or len(token) > LONGEST:
        return None
    fraction, exponent = match.groups()
    if fraction is None and exponent is None:
        return int(token)
    if exponent is not None and abs(int(exponent[1:])) > 2 * LONGEST:
        return None
    value = Decimal(token.decode())
    return value if abs(value.adjusted()) < LONGEST else None


def exact_text(number: float | Decimal) -> bytes:
    """The canonical text of a number's exact decimal value; a float stands for its shortest decimal."""
    decimal = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    sign, digits, exponent = decimal.as_tuple()
    assert isinstance(exponent, int)
    return _layout("".join(map(str, digits)), exponent, negative=bool(sign))


def double_text(number: float | Decimal) -> bytes:
    """The text RFC 8785 prescribes, which rounds the number to a double; its exact text where no double is near."""
    try:
        double = float(number)
    except OverflowError:
        return exact_text(number)
    return exact_text(double if isfinite(double) else number)


def _layout(digits: str, exponent: int, *, negative: bool) -> bytes:
    """Lay digits * 10**exponent out as ECMAScript's Number::toString does."""
    kept = digits.rstrip("0")
    if not kept:
        return b"0"
    point, count = len(digits) + exponent, len(kept)
    if count <= point <= 21:
        text = kept + "0" * (point - count)
    elif 0 < point <= 21:
        text = f"{kept[:point]}.{kept[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{kept}"
    else:
        mantissa = kept if count == 1 else f"{kept[0]}.{kept[1:]}"
        text = f"{mantissa}e{point - 1:+d}"
    return (f"-{text}" if negative else text).encode()
