"""Alternatives, composites, the payload as the key, and what a scope asks of keys."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.reading import Headers, read, refusal
from worker.errors import RegistrationError
from worker.rules.keys import KeyPolicy, KeyRule, field, fingerprint, header, preset
from worker.rules.reasons import Refused


def test_the_next_source_speaks_only_when_the_former_is_absent() -> None:
    rule = header("a") | header("b") | "c"
    assert read(rule, [("b", b"2"), ("a", b"1")], b'{"c":"3"}') == b"1"
    assert read(rule, [("b", b"2")], b'{"c":"3"}') == b"2"
    assert read(rule, [], b'{"c":"3"}') == b"3"
    assert read(rule) is None
    assert read("c" | header("a"), [("a", b"1")], b'{"c":"3"}') == b"3"


def test_a_composite_needs_all_its_parts() -> None:
    rule = field("shop") + header("id")
    assert read(rule, [("id", b"7")], b'{"shop":"s"}') == b"1:s1:7"
    assert read(rule, [("id", b"7")]) is None
    assert read(rule, [], b'{"shop":"s"}') is None
    assert read("shop" + header("id"), [("id", b"7")], b'{"shop":"s"}') == b"1:s1:7"
    assert read(rule | header("id"), [("id", b"7")]) == b"7"
    assert refusal(rule | header("id"), [("id", b"7")], b'{"shop":true}').reason == "invalid_key"


@given(
    st.lists(st.text(min_size=1, max_size=20), min_size=3, max_size=3),
    st.lists(st.text(min_size=1, max_size=20), min_size=3, max_size=3),
)
def test_no_two_composites_meet_by_joining(one: list[str], other: list[str]) -> None:
    rule = field("a") + "b" + "c"
    keys = [read(rule, value=json.dumps(dict(zip("abc", parts, strict=True))).encode()) for parts in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


def test_a_composite_keeps_the_common_limit() -> None:
    value = json.dumps({"a": "x" * 300, "b": "y" * 300}).encode()
    assert refusal(field("a") + "b", value=value).reason == "invalid_key"


def test_the_payload_can_be_the_key() -> None:
    rule = header("id") | fingerprint()
    assert read(rule, [("id", b"7")]) == b"7"
    one = read(rule, value=b'{"a":1,"b":2}')
    assert one == read(rule, value=b'{"b":2.0, "a":1}')
    assert one != read(rule, value=b'{"a":1,"b":3}')
    assert one is not None
    assert len(one) == 64
    assert read(fingerprint(exclude=("at",)), value=b'{"a":1,"at":1}') == read(
        fingerprint(exclude=("at",)), value=b'{"a":1,"at":2}'
    )
    assert read(fingerprint(), value=b"not json") is not None


def test_records_without_a_value_are_not_one_message() -> None:
    assert read(fingerprint(), value=None) is None


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (header("Idempotency-Key"), "header(idempotency-key)"),
        (field("a.b"), "field(a.b)"),
        (header("A") | "b", "header(a) | field(b)"),
        (header("A") + "b" + field("c"), "header(a) + field(b) + field(c)"),
        ((header("A") | "b") + "c", "(header(a) | field(b)) + field(c)"),
        ((header("A") + "b") | "c", "header(a) + field(b) | field(c)"),
        (fingerprint(), "fingerprint(canonical)"),
        (fingerprint(include=("a",)), "fingerprint(canonical +a)"),
        (preset("stripe"), "preset(stripe: field(id))"),
        (preset("cloudevents"), "preset(cloudevents: bridged(ce_source) + bridged(ce_id) | field(source) + field(id))"),
        (preset("stripe") + "x", "preset(stripe: field(id)) + field(x)"),
    ],
)
def test_every_rule_is_described_by_one_stable_line(rule: KeyRule, text: str) -> None:
    assert rule.describe() == text


def test_rules_show_their_parts_and_are_equal_when_they_say_the_same() -> None:
    rule = header("A") | "b" | "c"
    assert rule.parts == (header("a"), field("b"), field("c"))
    assert rule == header("a") | field("b") | "c"
    assert header("a").parts == ()


@pytest.mark.parametrize(
    ("rule", "headers", "value"),
    [
        (header("k"), [("k", b"secret-key" * 60)], b"{}"),
        (header("k"), [("k", b"secret-key"), ("k", b"secret-kez")], b"{}"),
        (header("Idempotency-Key"), [("Idempotency-Key", b'"secret-key')], b"{}"),
        (header("k"), [("k", b"secret-key\xff")], b"{}"),
        (field("id"), [], b'{"id":["secret-key"]}'),
        (field("id.x"), [], b'{"id":["secret-key"]}'),
        (field("id"), [], b'{"id":"' + b"secret-key" * 60 + b'"}'),
    ],
)
def test_a_refusal_never_shows_the_key(rule: KeyRule, headers: Headers, value: bytes) -> None:
    assert "secret" not in str(refusal(rule, headers, value))


def test_a_scope_may_ask_for_a_length_and_a_pattern() -> None:
    policy = KeyPolicy(min_length=4, pattern="[a-z0-9-]+")
    assert policy.check(b"ab-12") == b"ab-12"
    for key in (b"abc", b"ABCD", b"abcd\n", "абвг".encode()):
        with pytest.raises(Refused) as refused:
            policy.check(key)
        assert refused.value.reason == "invalid_key"
        assert key.decode() not in refused.value.detail
    assert KeyPolicy().check(b"x") == b"x"


@pytest.mark.parametrize("wrong", [{"min_length": 0}, {"min_length": 513}, {"pattern": "("}])
def test_a_policy_no_key_can_meet_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError) as refused:
        KeyPolicy(**wrong)
    assert refused.value.advice
