"""The canonical text: RFC 8785 byte for byte, with exact numbers where the RFC would round."""

import json
import struct
from decimal import Decimal
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.rules import reference
from worker.rules.canonical import canonical, exact_canonical
from worker.rules.document import Document
from worker.rules.numbers import exact_text

VECTORS = Path(__file__).parent / "vectors" / "jcs"
NAMES = sorted(path.name for path in (VECTORS / "input").iterdir())


def exact(text: str | bytes) -> bytes:
    return exact_canonical(Document(text.encode() if isinstance(text, str) else text).json)


@pytest.mark.parametrize("name", NAMES)
def test_the_vectors_of_the_rfc_come_out_byte_for_byte(name: str) -> None:
    document = Document((VECTORS / "input" / name).read_bytes())
    assert canonical(document) == (VECTORS / "output" / name).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_exact_text_is_the_vectors_text_but_for_the_one_number_the_rfc_rounds(name: str) -> None:
    expected = (VECTORS / "output" / name).read_bytes()
    if name == "values.json":
        expected = expected.replace(b"333333333.3333333", b"333333333.33333329")
    assert exact((VECTORS / "input" / name).read_bytes()) == expected


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_doubles_print_as_the_rfc_lists_them(bits: str, text: str) -> None:
    (double,) = struct.unpack(">d", bytes.fromhex(bits))
    assert exact_canonical(double) == text.encode()
    assert exact_canonical([double]) == f"[{text}]".encode()
    assert exact_canonical({"a": [double, 1.5]}) == f'{{"a":[{text},1.5]}}'.encode()


@settings(max_examples=500)
@given(reference.json_texts)
@example('"1.0,"')
@example('["1.0,",1.5,"1e-",2,"0e+"]')
@example('"1e-"')
def test_the_fast_text_is_the_slow_text(text: str) -> None:
    assert exact(text).decode() == reference.write(reference.parse(text))


@settings(max_examples=1000)
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e-5)
@example(9.999999999999999e-06)
def test_every_double_prints_as_ecmascript_does(double: float) -> None:
    expected = reference.number(Decimal(repr(double))).encode()
    assert exact_text(double) == expected
    assert exact_canonical([double]) == b"[%b]" % expected
    assert exact_canonical([double, "é"]) == f'[{expected.decode()},"é"]'.encode()


def test_doubles_around_every_power_print_as_ecmascript_does() -> None:
    powers = [2.0**power for power in range(-1074, 1024)] + [float(f"1e{power}") for power in range(-323, 309)]
    for power in powers:
        (bits,) = struct.unpack(">q", struct.pack(">d", power))
        for near in range(max(0, bits - 3), bits + 4):
            (double,) = struct.unpack(">d", struct.pack(">q", near))
            if double != float("inf"):
                assert exact_canonical([double]).decode() == f"[{reference.number(Decimal(repr(double)))}]"


@given(reference.number_tokens, reference.number_tokens)
def test_two_numbers_share_a_text_exactly_when_they_are_equal(one: str, other: str) -> None:
    assert (exact(one) == exact(other)) == (Decimal(one) == Decimal(other))
    assert (exact(f"[{one}]") == exact(f"[{other}]")) == (Decimal(one) == Decimal(other))


@pytest.mark.parametrize("token", reference.NASTY_NUMBERS)
def test_nasty_numbers_keep_their_value(token: str) -> None:
    assert Decimal(exact(token).decode()) == Decimal(token)
    assert exact(f'{{"a":{token}}}') == b'{"a":%b}' % exact(token)


@given(reference.json_texts)
def test_the_canonical_text_is_its_own_canonical_text(text: str) -> None:
    assert exact(exact(text)) == exact(text)


def test_every_character_is_written_as_the_rfc_asks() -> None:
    for first in range(0, 0x110000, 0x800):
        if not 0xD800 <= first < 0xE000:
            text = "".join(map(chr, range(first, first + 0x800)))
            assert exact(json.dumps(text)).decode() == reference.write(text)


def test_names_are_ordered_by_utf_16_code_units() -> None:
    astral, behind = "\U0001f602", "\ufb33"
    assert exact(json.dumps({behind: 1, astral: 2})) == f'{{"{astral}":2,"{behind}":1}}'.encode()
    assert exact(json.dumps([{"a": {behind: 1.0, astral: 2}}])) == f'[{{"a":{{"{astral}":2,"{behind}":1}}}}]'.encode()
    assert exact(json.dumps({"b": behind, "a": astral})) == f'{{"a":"{astral}","b":"{behind}"}}'.encode()


@pytest.mark.parametrize("depth", [1, 200, 253, 254, 255, 256, 600, 1020])
@pytest.mark.parametrize("leaf", ["1", "1.0", "1E400", '"\U0001f602\ufb33"'])
def test_nesting_never_changes_the_text(depth: int, leaf: str) -> None:
    written = exact(leaf).decode()
    assert exact("[" * depth + leaf + "]" * depth).decode() == "[" * depth + written + "]" * depth
    assert exact('{"a":' * depth + leaf + "}" * depth).decode() == '{"a":' * depth + written + "}" * depth


def test_writing_leaves_the_payload_as_it_was() -> None:
    document = Document(b'{"b":[1.0,{"c":2.0}],"a":1e-7}')
    exact_canonical(document.json)
    assert orjson.dumps(document.json) == b'{"b":[1.0,{"c":2.0}],"a":1e-7}'
    assert type(document.json["b"][0]) is float
