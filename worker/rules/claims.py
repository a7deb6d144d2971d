"""States of an entry, kinds of handlers, and how the end of a handler decides.

The transitions below are the only ones; every statement in ledger/sql names the one it makes.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class State(IntEnum):
    """Where an entry stands; the numbers are stored."""

    IN_PROGRESS = 1
    COMPLETED = 2
    FAILED_RETRYABLE = 3
    UNKNOWN = 4


class Kind(IntEnum):
    """What a handler's author promises about its effect; stored with the claim, so that it decides the settlement."""

    EXTERNAL = 1
    TRANSACTIONAL = 2
    REPEATABLE = 3


class Status(IntEnum):
    """What kind of result a completed entry holds; the numbers are stored."""

    OK = 1
    REJECTED = 2
    UNSTORABLE = 3


class Outcome(StrEnum):
    """What became of one record."""

    EXECUTED = "executed"
    REJECTED = "rejected"
    REPLAYED = "replayed"
    MISUSE = "misuse"
    PARKED = "parked"
    DEAD_LETTERED = "dead_lettered"


TRANSITIONS: frozenset[tuple[State | None, State | None]] = frozenset(
    {
        (None, State.IN_PROGRESS),  # claim
        (State.FAILED_RETRYABLE, State.IN_PROGRESS),  # claim again
        (State.IN_PROGRESS, State.COMPLETED),  # return, Reject, a result that cannot be stored
        (State.IN_PROGRESS, State.FAILED_RETRYABLE),  # proof of nothing executed, release, settlement
        (State.IN_PROGRESS, State.UNKNOWN),  # external, outcome uncertain
        (State.UNKNOWN, State.COMPLETED),  # late result, verdict executed
        (State.FAILED_RETRYABLE, State.COMPLETED),  # late result of the very claim in doubt
        (State.UNKNOWN, State.FAILED_RETRYABLE),  # late proof, verdict not executed, operator
        (State.COMPLETED, None),  # prune
        (State.FAILED_RETRYABLE, None),  # prune
    }
)


class Ending(IntEnum):
    """How a handler really ended."""

    RETURNED = 1
    REJECTED = 2
    NOT_EXECUTED = 3  # NotExecuted or a listed type
    FAILED = 4  # any other exception, cancel and timeout included


@dataclass(slots=True)
class Blocks:
    """What one run of a handler entered and how it left: the living witness of what may have been executed."""

    entered: int = 0
    proven: int = 0  # left by NotExecuted or a listed type

    @property
    def nothing_executed(self) -> bool:
        return self.entered == self.proven


def after(kind: Kind, ending: Ending, blocks: Blocks) -> State:
    """The state a claim moves to when its handler has really ended."""
    if ending in (Ending.RETURNED, Ending.REJECTED):
        return State.COMPLETED
    if kind is not Kind.EXTERNAL:
        return State.FAILED_RETRYABLE
    if blocks.entered == 0:
        return State.FAILED_RETRYABLE
    if ending is Ending.NOT_EXECUTED and blocks.nothing_executed:
        return State.FAILED_RETRYABLE
    return State.UNKNOWN


def after_death(kind: Kind) -> State:
    """The state a claim moves to when its session ended: a dead process proves nothing."""
    return State.UNKNOWN if kind is Kind.EXTERNAL else State.FAILED_RETRYABLE
