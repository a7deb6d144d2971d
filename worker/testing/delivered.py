"""What a test looks at: what became of a record, and what an entry says."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from worker.rules.claims import Outcome
from worker.rules.outgoing import Outgoing
from worker.rules.record import Record
from worker.rules.results import ContentType, Result
from worker.testing.deliveries import CrashPoint


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of one record.

    `outcome` is None if it is not finished yet, or if the process died over it; `crash` says where, if that was this
    record's own crash point. `state`, `fence` and `attempts` (the failed ones) are those of its entry, `runs` is how
    often the handler was called for this record, `errors` are the exceptions it ended with, oldest first. `reason` is
    that of the dead letter or of the parking, `detail` what the dead letter says.
    """

    record: Record
    outcome: Outcome | None
    crash: CrashPoint | None = None
    result: Any = None
    raw: bytes | None = None
    status: str | None = None
    code: str | None = None
    reason: str | None = None
    detail: str | None = None
    dead_letter: Outgoing | None = None
    published: Outgoing | None = None
    reply: Outgoing | None = None
    state: str | None = None
    fence: int | None = None
    attempts: int = 0
    runs: int = 0
    errors: tuple[BaseException, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class EntryView:
    """What an entry says, in words."""

    state: str
    kind: str
    fence: int
    attempts: int
    crashes: int
    held: int
    result: Any
    raw: bytes | None
    status: str | None
    code: str | None
    due_in: float | None
    error: str | None
    expires_at: datetime


def decode(result: Result) -> Any:
    """A stored result as the value it stands for."""
    if result.body is None:
        return None
    match result.content_type:
        case ContentType.JSON:
            return json.loads(result.body)
        case ContentType.TEXT:
            return result.body.decode()
    return result.body
