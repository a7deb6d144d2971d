"""What the engine hands to the ledger, and what it gets back."""

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

from worker.rules.entries import Row, Won
from worker.rules.record import Record
from worker.rules.results import Result

Place = tuple[bytes, str, int, int]


@dataclass(slots=True)
class Claimed:
    """The answer to one offer: each id is won or has a row; one with neither was pruned, or the session ended."""

    fence: int
    rows: dict[bytes, Row] = field(default_factory=dict)
    won: dict[bytes, Won] = field(default_factory=dict)  # those with earlier attempts
    all_won: bool = True
    plain: set[bytes] = field(default_factory=set)  # won at their first claim, when not all were

    def winner(self, id_: bytes) -> Won | None:
        if self.all_won or id_ in self.plain:
            return Won(self.fence)
        return self.won.get(id_)


class Completion(Protocol):
    """A claim whose handler has returned or rejected."""

    @property
    def id(self) -> bytes: ...
    @property
    def fence(self) -> int: ...
    @property
    def result(self) -> Result: ...
    @property
    def ttl(self) -> float: ...


@dataclass(slots=True)
class Done:
    """A completion by itself."""

    id: bytes
    fence: int
    result: Result
    ttl: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """A claim that provably executed nothing, and when it may be tried again."""

    id: bytes
    fence: int
    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class Doubted:
    """A claim of which nobody knows whether its effect happened."""

    id: bytes
    fence: int
    error: str


@dataclass(frozen=True, slots=True)
class Released:
    """A claim whose handler never started."""

    id: bytes
    fence: int


@dataclass(frozen=True, slots=True)
class Parking:
    """One record to park: with its entry's id, or without an entry under the digest of its position."""

    record: Record
    reason: str
    id: bytes | None = None
    operation: int | None = None
    due: float | None = None
    again: bool = False  # it is parked already: only its due time, reason and detail move
    owed: bool = False  # a letter or result is owed: it waits whatever the state of its entry
    detail: str | None = None  # what the owed letter says

    @property
    def place(self) -> Place:
        record = self.record
        id_ = self.id if self.id is not None else position_id(record)
        return (id_, record.topic, record.partition, record.offset)


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked record as it was taken out to be tried."""

    place: Place
    operation: int | None
    reason: str
    record: Record
    detail: str | None = None


def position_id(record: Record) -> bytes:
    """The id under which a record without an entry is parked."""
    position = f"{record.topic}\0{record.partition}\0{record.offset}".encode()
    return hashlib.blake2b(position, digest_size=16, person=b"oncebox position").digest()
