"""Whether two payloads are one: what changes a fingerprint, and what must not."""

import hashlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules import reference
from worker.errors import ConfigError, RegistrationError
from worker.rules.document import Document
from worker.rules.fingerprint import FORMAT, FingerprintRule

CANONICAL = FingerprintRule()
RAW = FingerprintRule(mode="raw")


def digest(value: bytes | None, rule: FingerprintRule = CANONICAL) -> bytes:
    found = rule.digest(Document(value))
    assert found is not None
    assert len(found) == 32
    return found


@pytest.mark.parametrize(
    "other",
    [
        b'{"b":[1,"\\u00e9\\/"],"a":100}',
        b' {\n\t"a" : 1.0e2 ,\r"b":[1.0, "\xc3\xa9/"] } ',
        b'{"a":7,"b":0,"a":1e2,"b":[1,"\xc3\xa9/"]}',
        b'{"\\u0061":100.000,"b":[1e0,"\xc3\xa9/"]}',
    ],
)
def test_order_space_escapes_and_the_writing_of_numbers_do_not_change_it(other: bytes) -> None:
    assert digest(other) == digest(b'{"a":100,"b":[1,"\xc3\xa9/"]}')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"9007199254740992", b"9007199254740993"),
        (b"18446744073709551616", b"18446744073709551617"),
        (b"123456789012345678901234567890", b"123456789012345678901234567891"),
        (b"0.1", b"0.1000000000000000055511151231257827"),
        (b"12345678901234567.89", b"12345678901234567.88"),
        (b"1E400", b"1E401"),
        (b"1e-400", b"0"),
        (b"333333333.33333329", b"333333333.3333333"),
        (b"1", b'"1"'),
        (b"[]", b"{}"),
        (b"null", b'""'),
        (b'{"a":null}', b"{}"),
        (b"1", b"true"),
        (b"0", b"false"),
        (b'"\\u0041\\u030a"', b'"\\u00c5"'),
    ],
)
def test_different_payloads_differ(one: bytes, other: bytes) -> None:
    assert digest(one) != digest(other)
    assert digest(b'{"a":%b}' % one) != digest(b'{"a":%b}' % other)


@given(reference.json_texts)
def test_it_is_the_plain_sha_256_of_the_canonical_text(text: str) -> None:
    assert digest(text.encode()) == hashlib.sha256(reference.write(reference.parse(text)).encode()).digest()


def test_it_is_the_same_in_every_process() -> None:
    program = (
        "from worker.rules.document import Document; from worker.rules.fingerprint import FingerprintRule; "
        'print(FingerprintRule().digest(Document(b\'{"b":1.0,"a":[2]}\')).hex())'
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(b'{"a":[2],"b":1}').hex()


def test_what_is_not_json_is_compared_byte_by_byte() -> None:
    assert digest(b"avro \x00\xff") == digest(b"avro \x00\xff")
    assert digest(b"avro \x00\xff") != digest(b"avro \x00\xfe")
    assert digest(b"") != digest(b" ")


@given(reference.json_texts, st.binary())
def test_json_and_raw_bytes_never_meet(text: str, raw: bytes) -> None:
    assert digest(text.encode()) != digest(raw, RAW)
    assert digest(text.encode()) != digest(text.encode(), RAW)


def test_no_value_is_unlike_every_value() -> None:
    values = [b"", b"null", b"\x00", b"\x01", b'""', b"{}"]
    for rule in (CANONICAL, RAW):
        assert digest(None, rule) not in {digest(value, rule) for value in values}
        assert digest(None, rule) == digest(None, rule)


def test_raw_bytes_are_compared_as_they_are() -> None:
    assert digest(b'{"a":1}', RAW) != digest(b'{"a": 1}', RAW)
    assert digest(b'{"a":1}', RAW) == digest(b'{"a":1}', RAW)


def test_switched_off_there_is_none() -> None:
    off = FingerprintRule(mode="off")
    assert off.digest(Document(b"{}")) is None
    assert off.digest_as(FORMAT, Document(b"{}")) is None


def test_excluded_fields_do_not_count() -> None:
    rule = FingerprintRule(exclude=("attempt", "data.sent_at", r"http\.url", "not.there"))
    first = digest(b'{"attempt":1,"data":{"sent_at":1,"x":1},"http.url":"a"}', rule)
    assert digest(b'{"attempt":2,"data":{"sent_at":2,"x":1},"http.url":"b"}', rule) == first
    assert digest(b'{"data":{"x":1.0}}', rule) == first
    assert digest(b'{"attempt":1,"data":{"sent_at":1,"x":2},"http.url":"a"}', rule) != first
    assert digest(b'{"attempt":1,"data":{"sent_at":1,"x":1},"http.url":"a","y":1}', rule) != first


def test_only_included_fields_count() -> None:
    rule = FingerprintRule(include=("type", "data.object.id"))
    first = digest(b'{"type":"paid","data":{"object":{"id":7,"at":1}},"n":1}', rule)
    assert digest(b'{"n":2,"data":{"object":{"at":2,"id":7}},"type":"paid"}', rule) == first
    assert digest(b'{"type":"paid","data":{"object":{"id":8}}}', rule) != first
    assert digest(b'{"type":"paid","data":{"object":{"id":null}}}', rule) != digest(
        b'{"type":"paid","data":{"object":{}}}', rule
    )


def test_fields_can_be_left_out_of_an_included_one() -> None:
    rule = FingerprintRule(include=("data",), exclude=("data.at",))
    assert digest(b'{"data":{"at":1,"x":1},"n":1}', rule) == digest(b'{"data":{"x":1}}', rule)
    assert digest(b'{"data":{"at":1,"x":1}}', rule) != digest(b'{"data":{"at":1,"x":2}}', rule)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"[1]", b"[2]"),
        (b"1", b"2"),
        (b'{"data":[1]}', b'{"data":[2]}'),
        (b'{"data":{"object":"a"}}', b'{"data":{"object":"b"}}'),
    ],
)
def test_payloads_of_an_unforeseen_form_do_not_look_alike(one: bytes, other: bytes) -> None:
    rule = FingerprintRule(include=("data.object.id",), exclude=("data.object.at",))
    assert digest(one, rule) != digest(other, rule)


def test_excluding_leaves_the_payload_as_it_was() -> None:
    document = Document(b'{"a":{"b":1,"c":2}}')
    FingerprintRule(exclude=("a.b",)).digest(document)
    assert document.json == {"a": {"b": 1, "c": 2}}


def test_a_secret_makes_another_digest_that_needs_the_secret() -> None:
    keyed = FingerprintRule(secret=b"one secret")
    assert digest(b"{}", keyed) == digest(b" {}", keyed)
    assert len({digest(b"{}", rule) for rule in (CANONICAL, keyed, FingerprintRule(secret=b"another"))}) == 3
    assert len({digest(b"\xff", rule) for rule in (CANONICAL, keyed, FingerprintRule(secret=b"another"))}) == 3


def test_a_secret_is_never_shown() -> None:
    rule = FingerprintRule(secret=b"hush")
    assert "hush" not in repr(rule) + rule.describe()


def test_a_row_is_compared_in_its_own_format() -> None:
    document = Document(b'{"a":1}')
    assert CANONICAL.digest_as(FORMAT, document) == CANONICAL.digest(document)
    with pytest.raises(ConfigError, match="upgrade"):
        CANONICAL.digest_as(FORMAT + 1, document)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "sha1"},
        {"mode": "raw", "include": ("a",)},
        {"mode": "off", "exclude": ("a",)},
        {"include": ("a..b",)},
        {"exclude": ("items[0].id",)},
    ],
)
def test_a_rule_that_cannot_work_is_refused_with_advice(wrong: dict[str, object]) -> None:
    with pytest.raises(RegistrationError) as refused:
        FingerprintRule(**wrong)  # type: ignore[arg-type]
    assert refused.value.advice


def test_the_rule_is_described_in_one_stable_line() -> None:
    assert CANONICAL.describe() == "canonical"
    assert FingerprintRule(include=("b", "a"), exclude=("c",)).describe() == "canonical +b +a -c"
    assert FingerprintRule(mode="raw", secret=b"s").describe() == "raw keyed"


def test_rules_of_equal_settings_are_equal() -> None:
    assert FingerprintRule(include=("a",)) == FingerprintRule(include=["a"])  # type: ignore[arg-type]
    assert hash(FingerprintRule(include=("a",))) == hash(FingerprintRule(include=("a",)))
    assert FingerprintRule(secret=b"a") != FingerprintRule(secret=b"b")


def test_a_handlers_view_and_the_fingerprint_agree_on_repeated_names() -> None:
    document = Document(b'{"amount":1,"amount":2}')
    assert document.json == {"amount": 2}
    assert digest(b'{"amount":1,"amount":2}') == digest(json.dumps(document.json).encode())
