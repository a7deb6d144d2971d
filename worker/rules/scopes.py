"""Scopes: named policies for how long to remember, what counts as the same payload, and what is stored."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from worker.errors import RegistrationError
from worker.rules.durations import duration
from worker.rules.fingerprint import FingerprintRule
from worker.rules.results import Keep
from worker.rules.retries import Retries


@dataclass(frozen=True, slots=True)
class Scope:
    """A named policy: `Scope("invoices", ttl="14d")`. Settings may override what is written here."""

    name: str
    # Shorter forgets sooner what was done; longer keeps more rows.
    ttl: timedelta | str | float
    fingerprint: FingerprintRule = field(default_factory=FingerprintRule)
    retries: Retries = field(default_factory=Retries)
    # What a replay can give back: the bytes, only proof of which bytes they were, or nothing.
    results: Keep = "bytes"
    # What to do with a record that carries no key: park it for a person, or let its payload be its key.
    missing_key: Literal["dead_letter", "fingerprint"] = "dead_letter"
    private_keys: bool = False
    key_min_length: int = 1
    key_pattern: str | None = None
    # Topics that a record's `reply_to` header may name.
    reply_to: frozenset[str] = frozenset()
    audit_ttl: timedelta | str | float | None = None

    def __post_init__(self) -> None:
        if not self.name or len(self.name.encode()) > 100:
            raise RegistrationError(f"scope name {self.name!r} is empty or longer than 100 bytes")
        object.__setattr__(self, "ttl", duration(self.ttl))
        if self.audit_ttl is not None:
            object.__setattr__(self, "audit_ttl", duration(self.audit_ttl))
        object.__setattr__(self, "reply_to", frozenset(self.reply_to))
        if self.lifetime <= timedelta(0):
            raise RegistrationError(f"scope {self.name!r}: a ttl of {self.ttl} forgets everything at once")

    @property
    def lifetime(self) -> timedelta:
        return duration(self.ttl)


SHIPPED = (
    Scope("webhooks", ttl="7d"),
    Scope("jobs", ttl="30d"),
    Scope("payments", ttl="24h"),
    Scope("signups", ttl="1h"),
)
