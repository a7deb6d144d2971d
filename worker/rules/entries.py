"""What is offered to the ledger, what a row says, and what that means for a record."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from worker.rules.claims import Kind, State, Status
from worker.rules.results import ContentType, Result


@dataclass(frozen=True, slots=True)
class Plan:
    """What the ledger must know about an operation, prepared once."""

    operation: int
    kind: Kind
    ttl: float
    attempts_cap: int


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """What the messages of one operation on one partition have in common; one object for all of them."""

    plan: Plan
    topic_number: int | None
    partition: int
    format: int


class Claimable(Protocol):
    """A message whose key can be claimed."""

    id: bytes
    origin: Origin
    offset: int
    fingerprint: bytes | None
    stored_tenant: bytes | None
    stored_key: bytes | None


@dataclass(slots=True)
class Row:
    """One entry as the ledger has it; nobody changes it (a frozen one takes three times as long to make)."""

    id: bytes
    state: State
    fence: int
    fingerprint: bytes | None
    format: int
    attempts: int
    crashes: int
    result: Result | None
    due_in: float | None
    failed_at: datetime | None
    expires_at: datetime

    @classmethod
    def completed(cls, status: int, content_type: int, body: bytes | None, code: str | None) -> Result:
        return Result(Status(status), ContentType(content_type), body, code)


@dataclass(frozen=True, slots=True)
class Won:
    """The right to run, with what earlier attempts left behind."""

    fence: int
    attempts: int = 0
    crashes: int = 0
    failed_at: datetime | None = None


class Answer(StrEnum):
    """What a row means for one record that carries its key."""

    MISUSE = "misuse"
    REPLAY = "replay"
    WAIT = "wait"
    DOUBT = "doubt"
    DUE = "due"
    LATER = "later"
    EXHAUSTED = "exhausted"
    CRASH_LOOP = "crash_loop"


def answer(row: Row, fingerprint: bytes | None, plan: Plan, crash_cap: int) -> Answer:
    """Judge one record against the row, fingerprint first, in every state."""
    if row.fingerprint != fingerprint:
        return Answer.MISUSE
    match row.state:
        case State.COMPLETED:
            return Answer.REPLAY
        case State.IN_PROGRESS:
            return Answer.WAIT
        case State.UNKNOWN:
            return Answer.DOUBT
        case State.FAILED_RETRYABLE:
            if row.crashes >= crash_cap:
                return Answer.CRASH_LOOP
            if row.attempts >= plan.attempts_cap:
                return Answer.EXHAUSTED
            return Answer.DUE if row.due_in is None or row.due_in <= 0 else Answer.LATER
