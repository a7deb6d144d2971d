"""Rules that take a key from a record: their algebra, and the limits every key keeps.

A rule answers None when its source is absent, and refuses when the source is there but cannot be a key: only absence
lets the next source speak.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from worker.rules.document import Document
from worker.rules.paths import Path
from worker.rules.reasons import Refused
from worker.rules.record import Record

LIMIT: Final = 512


class KeyRule(ABC):
    """How a key is found; `a | b` takes the first that is there, `a + b` joins both, a string is a field path."""

    __slots__ = ()

    @abstractmethod
    def read(self, record: Record, document: Document) -> bytes | None:
        """The key, 1 to 512 bytes; None if it is absent; refused if it is there but cannot be a key."""

    @abstractmethod
    def describe(self) -> str:
        """The rule as one stable line: stored per operation and compared at every start."""

    @property
    def parts(self) -> tuple["KeyRule", ...]:
        """The rules this one is made of, in order; none for a single source."""
        return ()

    def __or__(self, other: "KeyRule | str") -> "KeyRule":
        return FirstOf((*_alternatives(self), *_alternatives(as_rule(other))))

    def __ror__(self, other: "KeyRule | str") -> "KeyRule":
        return as_rule(other) | self

    def __add__(self, other: "KeyRule | str") -> "KeyRule":
        return Composite((*_pieces(self), *_pieces(as_rule(other))))

    def __radd__(self, other: "KeyRule | str") -> "KeyRule":
        return as_rule(other) + self


@dataclass(frozen=True, slots=True)
class Field(KeyRule):
    """A value in the payload: a string as it is, a whole number as its decimal digits.

    `1`, `1.0` and `"1"` give one key: bridges and producers change one into another. Fractions, booleans, objects and
    arrays are refused; null counts as absent.
    """

    path: Path

    def read(self, record: Record, document: Document) -> bytes | None:
        value = self.path.find(document.json)
        if value is None:
            return None
        key = value.encode() if type(value) is str else self._digits(value)
        return key if 0 < len(key) <= LIMIT else within_limits(key, self)

    def _digits(self, value: object) -> bytes:
        if type(value) is int:
            return b"%d" % value
        if isinstance(value, float | Decimal):
            number = Decimal(repr(value)) if isinstance(value, float) else value
            if number == number.to_integral_value():
                return format(number if number else Decimal(0), ".0f").encode()
        raise Refused("invalid_key", f"{self.describe()} is neither a string nor a whole number")

    def describe(self) -> str:
        return f"field({self.path})"


@dataclass(frozen=True, slots=True)
class FirstOf(KeyRule):
    """The first source that is there; one that is there but unusable is refused, never skipped."""

    rules: tuple[KeyRule, ...]

    def read(self, record: Record, document: Document) -> bytes | None:
        for rule in self.rules:
            key = rule.read(record, document)
            if key is not None:
                return key
        return None

    def describe(self) -> str:
        return " | ".join(rule.describe() for rule in self.rules)

    @property
    def parts(self) -> tuple[KeyRule, ...]:
        return self.rules


@dataclass(frozen=True, slots=True)
class Composite(KeyRule):
    """Several sources as one key, each with its length in front; absent unless all are there."""

    rules: tuple[KeyRule, ...]

    def read(self, record: Record, document: Document) -> bytes | None:
        joined = b""
        for rule in self.rules:
            key = rule.read(record, document)
            if key is None:
                return None
            joined += b"%d:%b" % (len(key), key)
        return within_limits(joined, self)

    def describe(self) -> str:
        return " + ".join(f"({text})" if " | " in (text := rule.describe()) else text for rule in self.rules)

    @property
    def parts(self) -> tuple[KeyRule, ...]:
        return self.rules


def as_rule(source: KeyRule | str) -> KeyRule:
    """The rule itself, or the field path a plain string stands for."""
    return Field(Path.of(source)) if isinstance(source, str) else source


def within_limits(key: bytes, rule: KeyRule) -> bytes:
    """The key, if its length is legal; the refusal names the rule, never the key."""
    if 0 < len(key) <= LIMIT:
        return key
    problem = f"{len(key)} bytes, over the limit of {LIMIT}" if key else "empty"
    raise Refused("invalid_key", f"{rule.describe()} is {problem}")


def _alternatives(rule: KeyRule) -> tuple[KeyRule, ...]:
    return rule.rules if isinstance(rule, FirstOf) else (rule,)


def _pieces(rule: KeyRule) -> tuple[KeyRule, ...]:
    return rule.rules if isinstance(rule, Composite) else (rule,)
