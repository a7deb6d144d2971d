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


def owed_letter(parked_for: str) -> Reason | None:
    """The reason of the dead letter that a record is parked for; None if it waits for something else."""
    kind, _, reason = parked_for.partition(":")
    return next((known for known in REASONS if known == reason), None) if kind == "unwritable" else None


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
