"""The canonical text written the slow and obvious way, to hold the fast one against."""

import json
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

_NASTY = """
    0 -0 0.0 -0.0 0e5 0e999999999 -0.000 1 -1 1.0 -1.0 1.0e2 100 1e2 1E+2 10.50 1e0 1e-1 12e-1 123e15 1e15 1e16
    1e17 1e20 1e21 1e22 123456789012345680000 1e-4 1e-5 0.00001 9.9e-6 0.000001 1e-6 1e-7 1.5e-6 5e-324 4.9e-324
    3e-324 1e-324 1e-400 2.2250738585072014e-308 2.2250738585072011e-308 1.23456e-322 1.7976931348623157e308
    1.7976931348623159e308 1E400 -1E400 9007199254740991 9007199254740992 9007199254740993 9007199254740993.0
    18446744073709551615 18446744073709551616 -9223372036854775808 -9223372036854775809 9999999999999999999
    99999999999999999999 123456789012345678901234567890 0.1 0.10 0.30000000000000004
    0.1000000000000000055511151231257827 0.10000000000000001 333333333.33333329 333333333.3333333
    333333333.33333331 12345678901234567.89 1234567890123456e5 1234567890123456.7 0.1234567890123456789
    1.000000000000000000000000000000 100000000000000000000.000 0.000000000000000000000000000000000000000001
    12345678901234567e-10 9999999999999998 99999999999999999 1.0e16 1.5e300 -1.5e+300 1e00005 4503599627370497.5
    9007.199254740993 90071992.54740993 -9.007199254740993 8.589973247306431 85899732473064.31
"""
NASTY_NUMBERS = _NASTY.split()


def _with_point(digits: int, place: int) -> str:
    return f"{str(digits)[:place]}.{str(digits)[place:]}"


number_tokens = st.one_of(
    st.sampled_from(NASTY_NUMBERS),
    st.integers().map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**12), max_value=10**12).map(str),
    st.tuples(st.integers(10**14, 10**17), st.integers(1, 14)).map(lambda made: _with_point(*made)),
    st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[1-5]?[0-9]{1,2})?", fullmatch=True),
)

look_alikes = st.sampled_from(
    [
        "1.0,",
        ":49.0,2",
        "a: 12345678901234567890, b",
        ":1e5",
        "3e5a-11ef",
        "n1",
        "s1",
        "12:30:45.123456789012345678",
        "1E400",
        '"',
        '\\"',
        "\\",
        "\\\\",
        '\\\\"',
        ",1.0]",
        "00000000000000000000",
        ".00000000000000000000",
        "e-",
        "1e-",
    ]
)
strings = st.one_of(
    st.text(), look_alikes, st.text("ab\ud7ff\ue000\ufb33\uffff\U00010000\U0001f602\U0010ffff\n\x00\x7f\u2028é")
)
spaces = st.sampled_from(["", "", "", " ", "\n", "\t \r\n"])


@st.composite
def string_tokens(draw: st.DrawFn) -> str:
    return json.dumps(draw(strings), ensure_ascii=draw(st.booleans()))


@st.composite
def _arrays(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    space = draw(spaces)
    return "[" + space + ",".join(space + item + space for item in draw(st.lists(items, max_size=5))) + "]"


@st.composite
def _objects(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    space = draw(spaces)
    members = draw(st.lists(st.tuples(string_tokens(), items), max_size=5))
    return "{" + space + ",".join(f"{space}{name}{space}:{space}{item}{space}" for name, item in members) + "}"


json_texts = st.builds(
    lambda before, text, after: before + text + after,
    spaces,
    st.recursive(
        st.one_of(number_tokens, string_tokens(), st.sampled_from(["true", "false", "null"])),
        lambda items: st.one_of(_arrays(items), _objects(items)),
        max_leaves=25,
    ),
    spaces,
)


def parse(text: str) -> Any:
    """The payload with every number as a Decimal."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def write(value: Any) -> str:
    """RFC 8785, numbers by their exact value."""
    match value:
        case dict():
            names = sorted(value, key=lambda name: name.encode("utf-16-be"))
            return "{" + ",".join(f"{_string(name)}:{write(value[name])}" for name in names) + "}"
        case list():
            return "[" + ",".join(map(write, value)) + "]"
        case str():
            return _string(value)
        case Decimal():
            return number(value)
    return {True: "true", False: "false", None: "null"}[value]


def number(value: Decimal) -> str:
    """ECMAScript's Number::toString step by step, with s, k and n taken from the exact value."""
    if not value:
        return "0"
    if value < 0:
        return "-" + number(value.copy_negate())
    s, exponent = int("".join(map(str, value.as_tuple().digits))), int(value.as_tuple().exponent)
    while s % 10 == 0:
        s, exponent = s // 10, exponent + 1
    k = len(str(s))
    n = k + exponent
    if k <= n <= 21:
        return str(s) + "0" * (n - k)
    if 0 < n <= 21:
        return str(s)[:n] + "." + str(s)[n:]
    if -6 < n <= 0:
        return "0." + "0" * -n + str(s)
    sign = "+" if n - 1 > 0 else "-"
    if k == 1:
        return f"{s}e{sign}{abs(n - 1)}"
    return f"{str(s)[0]}.{str(s)[1:]}e{sign}{abs(n - 1)}"


_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def _string(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'
