"""Why a record cannot be handled: the reasons a dead letter may carry, named once."""

from typing import Final, Literal, get_args

Reason = Literal[
    "missing_key",
    "missing_tenant",
    "invalid_key",
    "undecodable",
    "invalid_payload",
    "misuse",
    "retries_exhausted",
    "crash_loop",
    "unknown",
    "beyond_ttl",
    "too_large",
    "no_handler",
    "skipped",
]

REASONS: Final[tuple[Reason, ...]] = get_args(Reason)


class Refused(Exception):
    """A record is refused before any claim; it leaves no entry.

    `detail` is written to logs and dead letters: it names places, sizes and positions, never a key or a payload.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason: Reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
