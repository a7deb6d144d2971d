"""What a record's value is as JSON: exact, the last of repeated names, and refused when it is not JSON."""

import contextlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from tests.rules import reference
from worker.rules.document import Document
from worker.rules.numbers import LONGEST
from worker.rules.reasons import REASONS, Refused


def as_decimals(value: Any) -> Any:
    """The payload with every number as a Decimal, as the reference parses it; a float is its shortest decimal."""
    match value:
        case dict():
            return {name: as_decimals(item) for name, item in value.items()}
        case list():
            return [as_decimals(item) for item in value]
        case bool() | str() | None:
            return value
        case float():
            return Decimal(repr(value))
    return Decimal(value)


@given(reference.json_texts)
def test_no_number_of_any_document_is_rounded(text: str) -> None:
    assert as_decimals(Document(text.encode()).json) == reference.parse(text)


@given(reference.number_tokens)
def test_no_lone_number_is_rounded(token: str) -> None:
    value = Document(token.encode()).json
    assert as_decimals(value) == Decimal(token)
    assert type(value) in (int, float, Decimal)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b"18446744073709551616", 2**64),
        (b"-9223372036854775809", -(2**63) - 1),
        (b"9007199254740993", 2**53 + 1),
        (b"1.0", 1.0),
        (b"0.1", 0.1),
        (b"1E400", Decimal("1E400")),
        (b"0.10000000000000001", Decimal("0.10000000000000001")),
    ],
)
def test_a_number_is_a_decimal_only_where_a_double_would_lose_digits(token: bytes, expected: object) -> None:
    for value in (Document(token).json, Document(b'{"a":[' + token + b"]}").json["a"][0]):
        assert value == expected
        assert type(value) is type(expected)


@pytest.mark.parametrize("before", [b"", b"[", b"[1,", b"[ ", b"[\t", b"[\r", b"[\n", b'{"a":', b"[-1,\r", b'["\\"",'])
@pytest.mark.parametrize("token", [b"18446744073709551617", b"-9223372036854775809", b"9007.199254740993", b"1e-400"])
def test_a_number_is_found_behind_everything_that_may_stand_before_it(before: bytes, token: bytes) -> None:
    after = {b"": b"", b"{": b"}"}.get(before[:1], b"]")
    value = Document(before + token + after).json
    number = value if not before else value["a"] if isinstance(value, dict) else value[-1]
    assert number == Decimal(token.decode())


def test_strings_are_never_taken_for_numbers() -> None:
    text = b'{"n1E400":"n1E400","a":"1E400","b":1E400,"s":"s1","n":["n2", "\\"n3", "\\\\"]}'
    assert Document(text).json == {
        "n1E400": "n1E400",
        "a": "1E400",
        "b": Decimal("1E400"),
        "s": "s1",
        "n": ["n2", '"n3', "\\"],
    }


@pytest.mark.parametrize("extra", [b"1", b"18446744073709551616", b"1E400"])
def test_of_repeated_names_the_last_wins(extra: bytes) -> None:
    assert Document(b'{"a":1,"x":' + extra + b',"a":2,"\\u0061":3}').json["a"] == 3


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"NaN",
        b"[NaN]",
        b"Infinity",
        b"-Infinity",
        b"[1,]",
        b"{'a':1}",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"--1",
        b"1e",
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\n"',
        b'"',
        b"{",
        b"nul",
        b"1 2",
        b"\x00\x01\x02avro",
        b"[" * 5000 + b"]" * 5000,
        b"1E400 x",
        b"[1E400",
        b"[1E400,--2]",
        b'[1E400,"\\ud800"]',
        b"[1E400,NaN]",
        b'[1E400,"\xff"]',
        b"[1E400,01]",
        b"[1E400,]",
        b'[1E400,"abc',
        b'[1E400,"abc\\',
        b"[1E400," * 3000,
    ],
)
def test_what_is_not_json_is_undecodable(value: bytes) -> None:
    document = Document(value)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            _ = document.json
        assert refused.value.reason == "undecodable"


def test_a_missing_value_is_an_invalid_payload() -> None:
    with pytest.raises(Refused) as refused:
        _ = Document(None).json
    assert refused.value.reason == "invalid_payload"


@pytest.mark.parametrize(
    "token", [b"1e641", b"1e-700", b"9" * (LONGEST + 1), b"1e99999999999999999999", b"1e-99999999999999999999"]
)
def test_a_number_too_long_to_be_written_out_is_undecodable(token: bytes) -> None:
    with pytest.raises(Refused, match=f"more than {LONGEST} digits"):
        _ = Document(b"[" + token + b"]").json


@pytest.mark.parametrize("token", [b"0e99999999999999999999", b"0.0e-99999999999999999999", b"-0e641"])
def test_zero_is_zero_whatever_its_exponent(token: bytes) -> None:
    assert Document(token).json == 0


def test_nesting_goes_as_deep_with_exact_numbers_as_without() -> None:
    for number in (b"1", b"1E400"):
        assert Document(b"[" * 1000 + number + b"]" * 1000).json
        with pytest.raises(Refused):
            _ = Document(b"[" * 1100 + number + b"]" * 1100).json


@pytest.mark.parametrize(
    "value",
    [
        b'["' + b"1e" * 500_000 + b'"]',
        b'["' + b"0" * 1_000_000 + b'"]',
        b'["' + b"1" * 1_000_000 + b'"]',
        b"[" + b"1e5," * 200_000 + b"1]",
        b'[1E400,"' + b'\\"' * 300_000,
        b'[1E400,"' + b"1." * 300_000,
        b"1" * 1_000_000,
        b"0." + b"3" * 1_000_000,
        b"[" + b"12345678901234567890," * 50_000 + b"1]",
    ],
)
@pytest.mark.timeout(20)
def test_hostile_digits_are_read_in_linear_time(value: bytes) -> None:
    with contextlib.suppress(Refused):
        _ = Document(value).json


def test_a_refusal_tells_the_place_and_never_the_payload() -> None:
    with pytest.raises(Refused) as refused:
        _ = Document(b'{"card":"4111111111111111",}').json
    assert "4111" not in str(refused.value)
    assert "char" in refused.value.detail
    assert refused.value.reason in REASONS
