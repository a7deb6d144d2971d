"""Keys from headers: any letter case, one value, the quoted and the bare form."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.reading import read, refusal
from worker.errors import RegistrationError
from worker.rules.document import Document
from worker.rules.keys import header
from worker.rules.record import Record


class Unreadable(Document):
    """A document nobody may read."""

    @property
    def json(self) -> Any:
        raise AssertionError("the payload was read")


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_header_names_match_in_any_letter_case(name: str) -> None:
    assert read(header("idempotency-KEY"), [("other", b"x"), (name, b"k1")]) == b"k1"
    assert read(header("X-Id"), [(name.replace("dempotency-", "d").lower(), b"k1"), ("x-ID", b"k2")]) == b"k2"


def test_a_header_rule_never_reads_the_payload() -> None:
    rule = header("Idempotency-Key") | "delivery_id"
    record = Record("t", 0, 0, headers=[("Idempotency-Key", b"k1")])
    assert rule.read(record, Unreadable(b"not json")) == b"k1"
    assert header("x").read(record, Unreadable(None)) is None


@pytest.mark.parametrize(
    ("quoted", "bare"),
    [
        (b'"8e03978e-40d5"', b"8e03978e-40d5"),
        (b'"a b"', b"a b"),
        (b' "abc"\t', b"abc"),
        (b'"a\\"b"', b'a"b'),
        (b'"a\\\\b"', b"a\\b"),
        (b'"\\\\\\""', b'\\"'),
        ('"ключ \N{FIRE}"'.encode(), "ключ \N{FIRE}".encode()),
        (b'"a\x00b"', b"a\x00b"),
    ],
)
def test_the_quoted_and_the_bare_idempotency_key_are_one_key(quoted: bytes, bare: bytes) -> None:
    assert read(header("Idempotency-Key"), [("Idempotency-Key", quoted)]) == bare
    if not bare.startswith(b'"'):
        assert read(header("Idempotency-Key"), [("Idempotency-Key", bare)]) == bare
        assert read(header("Idempotency-Key"), [("Idempotency-Key", quoted), ("idempotency-key", bare)]) == bare


@given(st.text(min_size=1, max_size=100))
def test_any_text_survives_the_quoted_form(text: str) -> None:
    quoted = b'"' + text.encode().replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    assert read(header("Idempotency-Key"), [("Idempotency-Key", quoted)]) == text.encode()


@pytest.mark.parametrize("value", [b'"abc', b'"a"b"', b'"a\\b"', b'"abc";v=1', b'"a", "b"', b'"', b'"\\"', b'"abc"x'])
def test_a_broken_quoted_form_is_refused(value: bytes) -> None:
    assert refusal(header("Idempotency-Key"), [("Idempotency-Key", value)]).reason == "invalid_key"


def test_quotes_belong_to_the_key_in_every_other_header() -> None:
    assert read(header("x-id"), [("x-id", b'"abc" ')]) == b'"abc" '


@pytest.mark.parametrize(
    "value", [b"", b'""', b" ", b"\xff\xfe", b"a\xed\xa0\x80", b"x" * 513, b'"' + b"x" * 513 + b'"', "é".encode() * 257]
)
def test_empty_long_and_undecodable_headers_are_refused(value: bytes) -> None:
    assert (
        refusal(header("Idempotency-Key") | "id", [("Idempotency-Key", value)], b'{"id":"k"}').reason == "invalid_key"
    )


@pytest.mark.parametrize(
    "key",
    [b"a\x00b", b"\x00", "\N{FIRE}".encode() * 128, b"x" * 512, "ключ".encode(), b"\n", b" a ", b"a" * 511 + b"\x00"],
)
def test_nul_emoji_any_unicode_and_512_bytes_are_legal(key: bytes) -> None:
    assert read(header("x-id"), [("x-id", key)]) == key
    assert read("id", value=json.dumps({"id": key.decode()}).encode()) == key


def test_a_header_given_twice_must_agree_with_itself() -> None:
    assert read(header("k"), [("k", b"1"), ("K", b"1"), ("k", None)]) == b"1"
    refused = refusal(header("k") | "id", [("k", b"1"), ("K", b"2")], b'{"id":1}')
    assert refused.reason == "invalid_key"
    assert "twice" in refused.detail


def test_a_header_without_a_value_is_absent() -> None:
    assert read(header("k"), [("k", None)]) is None
    assert read(header("k")) is None


def test_a_rule_without_a_header_name_is_refused() -> None:
    with pytest.raises(RegistrationError):
        header(" ")
