"""Who an entry is: every part counts, and no two tuples meet."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import ConfigError
from worker.rules.identity import Identity, effect_key, entry_id

tuples = st.tuples(st.text(max_size=8), st.text(max_size=8), st.none() | st.binary(max_size=8), st.binary(max_size=8))


def of(parts: tuple[str, str, bytes | None, bytes], secret: bytes | None = None) -> bytes:
    scope, operation, tenant, key = parts
    return entry_id(scope=scope, operation=operation, tenant=tenant, key=key, secret=secret)


@given(tuples, tuples)
def test_two_tuples_share_an_identity_exactly_when_they_are_equal(
    one: tuple[str, str, bytes | None, bytes], other: tuple[str, str, bytes | None, bytes]
) -> None:
    assert (of(one) == of(other)) == (one == other)
    assert (of(one, b"secret") == of(other, b"secret")) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "bc", None, b"k"), ("ab", "c", None, b"k")),
        (("a", "b", b"ck", b""), ("a", "b", b"c", b"k")),
        (("a", "b", None, b"k"), ("a", "b", b"", b"k")),
        (("a", "b", None, b"\x00\x00\x00\x01k"), ("a", "b", b"k", b"")),
        (("a", "b", b"x", b"k"), ("a", "b", b"y", b"k")),
        (("a", "b", None, b"k"), ("a", "c", None, b"k")),
        (("a", "b", None, b"k"), ("c", "b", None, b"k")),
        (("a", "b", None, b"k"), ("a", "b", None, b"k\x00")),
    ],
)
def test_parts_cannot_meet_by_joining(
    one: tuple[str, str, bytes | None, bytes], other: tuple[str, str, bytes | None, bytes]
) -> None:
    assert of(one) != of(other)


def test_the_stored_format_never_changes_by_accident() -> None:
    assert of(("payments", "charge", None, b"a1b2c3")).hex() == "5379b2b12482cf2a328f288de87125a5"
    assert of(("payments", "charge", b"acme", b"a1b2c3")).hex() == "e6d8788a946ce6bb3ab20ec3548bf997"
    assert of(("payments", "charge", b"acme", b"a1b2c3"), b"secret").hex() == "c48846f92a22fcedeb086b13b9136ace"
    assert effect_key(bytes(16)) == "12ce0943e0f9906a7758ba015b582fab1de8c929cc1269c1"
    assert effect_key(bytes(16), "refund") == "d0ed1b125d82442bda7bf19f4043d15307a33d06512b56c5"


@given(st.none() | st.binary(max_size=600), st.binary(max_size=600))
def test_a_prepared_identity_gives_the_same_sixteen_bytes(tenant: bytes | None, key: bytes) -> None:
    prepared = Identity(scope="payments", operation="charge")
    assert prepared.entry_id(tenant, key) == of(("payments", "charge", tenant, key))
    assert prepared.entry_id(tenant, key) == prepared.entry_id(tenant, key)
    assert len(prepared.entry_id(tenant, key)) == 16


def test_without_the_secret_nobody_can_tell_an_identity_or_an_effect_key_from_the_key() -> None:
    parts = ("signups", "welcome", None, b"ana@example.com")
    ids = [of(parts), of(parts, b"one"), of(parts, b"two"), of(parts, b"x" * 200)]
    assert len(set(ids)) == 4
    assert len({effect_key(entry) for entry in ids}) == 4


def test_an_empty_secret_is_refused_because_it_would_protect_nothing() -> None:
    with pytest.raises(ConfigError, match="empty"):
        Identity(scope="a", operation="b", secret=b"")


@given(tuples, st.text(max_size=100), st.text(max_size=100))
def test_an_effect_key_is_short_plain_and_its_own_for_every_identity_and_name(
    parts: tuple[str, str, bytes | None, bytes], name: str, other: str
) -> None:
    entry = of(parts)
    assert re.fullmatch("[0-9a-f]{48}", effect_key(entry, name))
    assert effect_key(entry, name) == effect_key(entry, name)
    assert (effect_key(entry, name) == effect_key(entry, other)) == (name == other)
    assert effect_key(entry, name) != effect_key(of((*parts[:3], parts[3] + b"x")), name)
    assert entry.hex() not in effect_key(entry, name)
