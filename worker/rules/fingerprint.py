"""Whether two records with one key carry one payload: a SHA-256 over what the scope looks at.

JSON is taken in canonical form with exact numbers; anything else as raw bytes, in a domain no JSON text can enter. The
digest of a JSON payload without a secret is the plain SHA-256 of its RFC 8785 text, so that others can compute it.
"""

import hmac
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, get_args

from worker.errors import ConfigError, RegistrationError
from worker.rules.canonical import exact_canonical
from worker.rules.document import Document
from worker.rules.identity import derived
from worker.rules.paths import Path
from worker.rules.reasons import Refused

FORMAT: Final = 1

Mode = Literal["canonical", "raw", "off"]

# No canonical JSON text starts with these.
_RAW: Final = b"\x00"
_NO_VALUE: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class FingerprintRule:
    """What of a payload must be equal for two records to be the same message."""

    mode: Mode = "canonical"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    secret: bytes | None = field(default=None, repr=False)
    _include: tuple[Path, ...] = field(init=False, repr=False, compare=False)
    _exclude: tuple[Path, ...] = field(init=False, repr=False, compare=False)
    _key: bytes | None = field(init=False, repr=False, compare=False)
    _plain: bool = field(init=False, repr=False, compare=False)  # the whole payload, and no secret

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise RegistrationError(
                f"fingerprint mode {self.mode!r} is unknown", advice=f"Choose one of {', '.join(get_args(Mode))}."
            )
        if self.mode != "canonical" and (self.include or self.exclude):
            raise RegistrationError(
                f"fingerprint mode {self.mode!r} looks at no fields", advice="Drop include and exclude, or the mode."
            )
        object.__setattr__(self, "include", tuple(self.include))
        object.__setattr__(self, "exclude", tuple(self.exclude))
        object.__setattr__(self, "_include", tuple(map(Path.of, self.include)))
        object.__setattr__(self, "_exclude", tuple(map(Path.of, self.exclude)))
        object.__setattr__(self, "_key", None if self.secret is None else derived(self.secret, b"fingerprint"))
        plain = self.mode == "canonical" and not self.include and not self.exclude and self.secret is None
        object.__setattr__(self, "_plain", plain)

    def digest(self, document: Document) -> bytes | None:
        """The 32 bytes to store with an entry and to compare with it; None when fingerprints are off."""
        if self._plain:
            try:
                text = exact_canonical(document.json, floats=document.has_floats)
            except Refused:
                text = _whole(document)
            return sha256(text).digest()
        if self.mode == "off":
            return None
        text = self._text(document)
        return sha256(text).digest() if self._key is None else hmac.digest(self._key, text, "sha256")

    def digest_as(self, version: int, document: Document) -> bytes | None:
        """The digest in the format of a stored row, so that a new release can judge old entries."""
        if version != FORMAT:
            raise ConfigError(
                f"a fingerprint is stored in format {version}, and this release knows format {FORMAT}",
                advice="A newer release wrote it: upgrade this worker.",
            )
        return self.digest(document)

    def describe(self) -> str:
        """The rule as one stable line, without its secret."""
        parts = [self.mode, *(f"+{path}" for path in self.include), *(f"-{path}" for path in self.exclude)]
        return f"{' '.join(parts)} keyed" if self.secret is not None else " ".join(parts)

    def _text(self, document: Document) -> bytes:
        value = document.value
        if value is not None and self.mode == "raw":
            return _RAW + value
        if not self._include and not self._exclude:
            return _whole(document)
        try:
            payload = document.json
        except Refused:
            return _whole(document)
        for path in self._exclude:
            payload = _without(payload, path.names)
        if self._include:
            payload = _only(payload, self._include)
        return exact_canonical(payload, floats=document.has_floats)


def _whole(document: Document) -> bytes:
    try:
        payload = document.json
    except Refused:
        value = document.value
        return _NO_VALUE if value is None else _RAW + value
    return exact_canonical(payload, floats=document.has_floats)


def _only(payload: Any, paths: tuple[Path, ...]) -> Any:
    """The values at these paths; where a path meets something other than an object, all of that.

    Leaving it out instead would make payloads of an unforeseen form all look alike.
    """
    if type(payload) is not dict:
        return payload
    chosen: dict[str, Any] = {}
    for path in paths:
        value: Any = payload
        for depth, name in enumerate(path.names):
            if type(value) is not dict:
                chosen[str(Path(path.names[:depth]))] = value
                break
            if name not in value:
                break
            value = value[name]
        else:
            chosen[str(path)] = value
    return chosen


def _without(payload: Any, names: tuple[str, ...]) -> Any:
    """The payload without one field, copied only along the way; arrays are left whole."""
    if type(payload) is not dict or names[0] not in payload:
        return payload
    rest = dict(payload)
    if len(names) == 1:
        del rest[names[0]]
    else:
        rest[names[0]] = _without(rest[names[0]], names[1:])
    return rest
