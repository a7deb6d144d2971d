"""What a handler's `key=` may say: header, field, preset, fingerprint, their alternatives and composites."""

import re
from dataclasses import dataclass
from dataclasses import field as attribute

from worker.errors import RegistrationError
from worker.rules.document import Document
from worker.rules.fingerprint import FingerprintRule
from worker.rules.headers import Header
from worker.rules.paths import Path
from worker.rules.presets import Preset, find_preset
from worker.rules.reasons import Refused
from worker.rules.record import Record
from worker.rules.sources import LIMIT, Composite, Field, FirstOf, KeyRule, as_rule

__all__ = [
    "LIMIT",
    "Composite",
    "Field",
    "FirstOf",
    "Header",
    "KeyPolicy",
    "KeyRule",
    "PayloadKey",
    "Preset",
    "as_rule",
    "field",
    "fingerprint",
    "header",
    "preset",
]


def header(name: str) -> Header:
    """The key is the value of this header, its name in any letter case."""
    return Header(name)


def field(path: str) -> Field:
    """The key is the string or whole number at this path of the payload."""
    return Field(Path.of(path))


def preset(name: str) -> Preset:
    """The key is where this webhook provider puts the id that stays the same over its retries."""
    return find_preset(name)


def fingerprint(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> "PayloadKey":
    """The key is the payload itself, or the named part of it: equal payloads are one message."""
    return PayloadKey(FingerprintRule(include=include, exclude=exclude))


@dataclass(frozen=True, slots=True)
class PayloadKey(KeyRule):
    """The digest of the payload as 64 hexadecimal digits; absent when there is no value.

    Otherwise all records without a value would be one message.
    """

    rule: FingerprintRule

    def read(self, record: Record, document: Document) -> bytes | None:
        if document.value is None:
            return None
        digest = self.rule.digest(document)
        return None if digest is None else digest.hex().encode()

    def describe(self) -> str:
        return f"fingerprint({self.rule.describe()})"


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """What a scope asks of its keys beyond the common limits; judged on the key as the rule read it."""

    min_length: int = 1
    pattern: str | None = None
    _compiled: re.Pattern[str] | None = attribute(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.min_length <= LIMIT:
            raise RegistrationError(
                f"min_length {self.min_length} is out of range", advice=f"Choose between 1 and {LIMIT} bytes."
            )
        try:
            object.__setattr__(self, "_compiled", None if self.pattern is None else re.compile(self.pattern))
        except re.error as error:
            raise RegistrationError(
                f"key pattern {self.pattern!r} is no regular expression: {error}", advice="The whole key must match it."
            ) from None

    def check(self, key: bytes) -> bytes:
        """The key itself if the scope allows it; refused otherwise."""
        if len(key) < self.min_length:
            raise Refused("invalid_key", f"the key has {len(key)} bytes, and the scope asks for {self.min_length}")
        if self._compiled is not None and self._compiled.fullmatch(key.decode()) is None:
            raise Refused("invalid_key", f"the key does not match the scope's pattern {self.pattern}")
        return key
