"""Keys from the payload: text as it is, whole numbers exactly, nothing that would be a guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.reading import read, refusal
from worker.errors import RegistrationError
from worker.rules.keys import field, header


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        ('{"a":{"b":"x"}}', b"x"),
        ('{"a":{"b":"\\u0000\\ud83d\\ude00"}}', "\x00\N{GRINNING FACE}".encode()),
        ('{"a":{"b":7}}', b"7"),
        ('{"a":{"b":-7}}', b"-7"),
        ('{"a":{"b":0}}', b"0"),
        ('{"a":{"b":-0.0}}', b"0"),
        ('{"a":{"b":1.0}}', b"1"),
        ('{"a":{"b":"1"}}', b"1"),
        ('{"a":{"b":1e3}}', b"1000"),
        ('{"a":{"b":9007199254740993}}', b"9007199254740993"),
        ('{"a":{"b":9007199254740993.0}}', b"9007199254740993"),
        ('{"a":{"b":18446744073709551617}}', b"18446744073709551617"),
        ('{"a":{"b":1e30}}', b"1" + b"0" * 30),
        ('{"a":{"b":123456789012345678901234567890}}', b"123456789012345678901234567890"),
    ],
)
def test_a_field_gives_its_text_or_its_exact_whole_number(payload: str, key: bytes) -> None:
    assert read(field("a.b"), value=payload.encode()) == key


@given(st.integers(-(10**400), 10**400), st.integers(-(10**400), 10**400))
def test_different_numbers_never_give_one_key(one: int, other: int) -> None:
    keys = [read("id", value=b'{"id":%d}' % number) for number in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
    assert keys[0] == str(one).encode()


@given(st.integers(-(10**300), 10**300))
def test_a_whole_number_gives_one_key_however_it_is_written(number: int) -> None:
    key = str(number).encode()
    assert read("id", value=b'{"id":%d.000}' % number) == key
    assert read("id", value=b'{"id":%de0}' % number) == key


@pytest.mark.parametrize(
    "value",
    ["true", "false", "1.5", "{}", "[]", '["x"]', '""', "1e600", "0.1000000000000000055511151231257827", "1e-7"],
)
def test_what_cannot_be_a_key_is_refused_and_not_skipped(value: str) -> None:
    payload = f'{{"id":{value},"other":"k"}}'.encode()
    assert refusal(field("id") | "other", value=payload).reason == "invalid_key"


@pytest.mark.parametrize(
    "payload", ['{"a":null}', '{"a":{}}', '{"a":{"b":null}}', "{}", '{"a":"text"}', "7", '"text"', "null"]
)
def test_null_and_missing_fields_are_absent(payload: str) -> None:
    assert read("a.b", value=payload.encode()) is None


def test_a_dot_that_belongs_to_a_name_is_escaped() -> None:
    assert read(r"http\.id", value=b'{"http.id":"k"}') == b"k"
    assert field(r"a.http\.id").describe() == r"field(a.http\.id)"


@pytest.mark.parametrize("payload", ['[{"id":"x"}]', '{"items":[{"id":"x"}]}', '{"items":[]}', '{"items":["x"]}'])
def test_an_array_in_the_way_is_refused_whatever_it_holds(payload: str) -> None:
    rule = field("id") if payload.startswith("[") else field("items.id")
    refused = refusal(rule | header("k"), [("k", b"1")], payload.encode())
    assert refused.reason == "invalid_key"
    assert "split" in refused.detail
    assert refusal(field("items.0.id"), value=b'{"items":[{"id":"x"}]}').reason == "invalid_key"


@pytest.mark.parametrize("path", ["items[0].id", "[].id", "items[].id", "", ".", "a..b", ".a", "a."])
def test_paths_that_cannot_work_are_refused_where_they_are_written(path: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        field(path)
    assert refused.value.advice
    assert repr(path) in str(refused.value)


def test_a_payload_that_cannot_be_read_is_refused_by_its_own_reason() -> None:
    assert refusal(field("id") | header("k"), [("k", b"1")], b"not json").reason == "undecodable"
    assert refusal("id", value=None).reason == "invalid_payload"
