"""RFC 8785: the one canonical text of a JSON payload.

orjson with sorted names writes that text already, except for floats it prints unlike ECMAScript (whole ones, and those
it gives an exponent), numbers beyond 64 bits, nesting beyond its limit, and names whose order by UTF-16 code units is
not their order by code points. What it wrote is taken only when it shows none of these.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson

from worker.rules.document import Document
from worker.rules.numbers import double_text, exact_text

_SORTED: Final = orjson.OPT_SORT_KEYS

# UTF-16 and code points disagree only between the characters behind the surrogates and the astral ones.
_BEHIND_SURROGATES: Final = "\ue000"
_BELOW_SURROGATES: Final = bytes(range(0xEE))
_ASTRAL: Final = 0xF0

# Every byte of orjson's text as the part it plays at the end of a float it printed in its own way. Before an exponent,
# which orjson always signs, no float ends with a zero.
_SHAPE: Final = bytes(
    ord("0") if byte == ord("0")
    else ord("1") if byte in b"123456789"
    else ord("-") if byte in b"+-"
    else ord(",") if byte in b",]}"
    else byte if byte in b".e"
    else ord("x")
    for byte in range(256)
)  # fmt: skip


def canonical(document: Document) -> bytes:
    """The payload as RFC 8785 writes it, which rounds every number to a double.

    For comparing with others' implementations; fingerprints are taken of `exact_canonical`, which rounds nothing.
    """
    return _write(document.json, double_text)


def exact_canonical(value: Any, *, floats: bool = True) -> bytes:
    """The canonical text with every number exact: RFC 8785 wherever a double's shortest form is the exact value.

    Without `floats` the caller knows that there are none.
    """
    if type(value) is float:
        return exact_text(value)
    try:
        text = orjson.dumps(value, _fragment, _SORTED)
        if floats:
            shape = text.translate(_SHAPE)
            if b".0," in shape or b"1e-" in shape:
                text = orjson.dumps(_reprinted(value), _fragment, _SORTED)
    except (orjson.JSONEncodeError, RecursionError):
        return _write(value, exact_text)
    if not text.isascii():
        leads = text.translate(None, _BELOW_SURROGATES)
        if leads and min(leads) < _ASTRAL <= max(leads) and _has_high_name(value):
            return _write(value, exact_text)
    return text


def _fragment(number: float | Decimal) -> orjson.Fragment:
    return orjson.Fragment(exact_text(number))


def _reprinted(item: Any) -> Any:
    """The item with every float as orjson must print it, copied only where there may be one below."""
    kind = type(item)
    if kind is dict:
        if _REPRINTED.isdisjoint(map(type, item.values())):
            return item
        return {name: _reprinted(below) if type(below) in _REPRINTED else below for name, below in item.items()}
    if kind is list:
        return [_reprinted(below) if type(below) in _REPRINTED else below for below in item]
    if kind is not float:
        return item
    if item.is_integer():
        return int(item) if -1e15 < item < 1e15 else _fragment(item)
    return _fragment(item) if -1e-4 < item < 1e-4 else item


_REPRINTED: Final = frozenset({dict, list, float})


def _has_high_name(item: Any) -> bool:
    below = item
    if type(item) is dict:
        names = "".join(item)
        if not names.isascii() and max(names) >= _BEHIND_SURROGATES:
            return True
        below = item.values()
    elif type(item) is not list:
        return False
    return any(type(each) in _REPRINTED and _has_high_name(each) for each in below)


def _write(value: Any, number: Callable[[float | Decimal], bytes]) -> bytes:
    """Write without shortcuts and without recursion, so that no nesting a parser accepts is too deep."""
    text: list[bytes] = []
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        match item:
            case bytes():
                text.append(item)
            case None | bool() | str():
                text.append(orjson.dumps(item))
            case int() | float() | Decimal():
                text.append(number(item))
            case list():
                text.append(b"[")
                todo.append(b"]")
                todo.extend(piece for below in reversed(item) for piece in (below, b","))
                if item:
                    todo.pop()
            case dict():
                names = sorted(item, key=lambda name: name.encode("utf-16-be"), reverse=True)
                text.append(b"{")
                todo.append(b"}")
                todo.extend(piece for name in names for piece in (item[name], b":", name, b","))
                if item:
                    todo.pop()
    return b"".join(text)
