"""Keys from record headers: any letter case, one value, and the quoted form of Idempotency-Key."""

import re
from dataclasses import dataclass, field
from typing import Final

from worker.errors import RegistrationError
from worker.rules.document import Document
from worker.rules.reasons import Refused
from worker.rules.record import Record
from worker.rules.sources import KeyRule, within_limits

STRUCTURED: Final = "idempotency-key"

# What bridges from HTTP put in front of a header's name, which they may also write with underscores.
BRIDGES: Final = ("", "http_", "http-", "http.", "header_", "header-", "header.")

_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\["\\])*+)"', re.DOTALL)
_ESCAPE: Final = re.compile(rb'\\(["\\])')


@dataclass(frozen=True, slots=True)
class Header(KeyRule):
    """The value of a header, found by its name in any letter case; a null value counts as absent.

    A header given twice must agree with itself. `bridged` also finds it under the names bridges give it.
    """

    name: str
    bridged: bool = False
    _names: frozenset[str] = field(init=False, repr=False, compare=False)
    _structured: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = self.name.strip().lower()
        if not name:
            raise RegistrationError("a header rule names no header", advice='Write header("Idempotency-Key").')
        spellings = {name, name.replace("-", "_"), name.replace("_", "-")} if self.bridged else {name}
        prefixes = BRIDGES if self.bridged else ("",)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_names", frozenset(prefix + each for prefix in prefixes for each in spellings))
        object.__setattr__(self, "_structured", name == STRUCTURED)

    def read(self, record: Record, document: Document) -> bytes | None:
        key: bytes | None = None
        for name, value in record.headers:
            if value is None or name.lower() not in self._names:
                continue
            found = self._decoded(value)
            if key is not None and key != found:
                raise Refused("invalid_key", f"{self.describe()} is given twice with different values")
            key = found
        return key

    def describe(self) -> str:
        return f"{'bridged' if self.bridged else 'header'}({self.name})"

    def _decoded(self, value: bytes) -> bytes:
        key = self._unquoted(value.strip(b" \t")) if self._structured else value
        if not key.isascii():
            try:
                key.decode()
            except UnicodeDecodeError as error:
                problem = f"{self.describe()} is not UTF-8 at byte {error.start}"
                raise Refused("invalid_key", problem) from None
        return within_limits(key, self)

    def _unquoted(self, value: bytes) -> bytes:
        """RFC 8941: a quoted string with escaped quotes and backslashes; what has no quote in front is bare."""
        if not value.startswith(b'"'):
            return value
        if value.count(b'"') == 2 and value.endswith(b'"') and b"\\" not in value:
            return value[1:-1]
        match = _QUOTED.fullmatch(value)
        if match is None:
            raise Refused("invalid_key", f"{self.describe()} starts with a quote but is no structured string")
        return _ESCAPE.sub(rb"\1", match[1])
