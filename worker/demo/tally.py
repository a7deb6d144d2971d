"""The account at the end. Pure: from what was sent, what happened outside and what the ledger says."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

from worker.demo.messages import Delivery, Message


@dataclass(frozen=True, slots=True)
class Entry:
    """What the ledger says about one key."""

    state: str
    crashes: int


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers that add up: unique = executed + in_doubt + lost, and sent = executed + replayed + parked + dead."""

    sent: int = 0
    unique: int = 0
    executed: int = 0  # the effect is there, and the ledger says completed
    replayed: int = 0  # records answered from a stored result
    in_doubt: int = 0  # the worker was killed while it held the claim: the ledger says unknown
    happened: int = 0  # those of in_doubt whose effect is there
    parked: int = 0  # records of keys in doubt, kept until the doubt is settled
    dead: int = 0  # dead letters
    again: int = 0  # repeatable effects that were repeated after the kill
    lost: int = 0  # neither executed nor in doubt
    twice: int = 0  # effects that happened more than once without being allowed to

    @property
    def kept_promise(self) -> bool:
        return self.lost == 0 and self.twice == 0

    def __add__(self, other: Self) -> "Tally":
        return Tally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found out about the messages of one handler after everything had stopped."""

    effects: Counter[str]  # by reference
    entries: Mapping[str, Entry]  # by key
    parked: int
    dead: int


def tally(messages: Sequence[Message], deliveries: Sequence[Delivery], facts: Facts) -> Tally:
    """The account of one handler's messages."""
    absent = Entry("absent", 0)
    executed = in_doubt = happened = again = twice = 0
    for message in messages:
        entry, effects = facts.entries.get(message.key, absent), facts.effects[message.reference]
        executed += entry.state == "completed" and effects > 0
        in_doubt += entry.state == "unknown"
        happened += entry.state == "unknown" and effects > 0
        # A repeatable handler may run again after each death of a worker, and only then.
        excused = entry.crashes if message.operation == "index_document" else 0
        again += min(max(effects - 1, 0), excused)
        twice += effects > 1 + excused
    return Tally(
        sent=len(deliveries),
        unique=len(messages),
        executed=executed,
        replayed=max(len(deliveries) - executed - facts.parked - facts.dead, 0),
        in_doubt=in_doubt,
        happened=happened,
        parked=facts.parked,
        dead=facts.dead,
        again=again,
        lost=len(messages) - executed - in_doubt,
        twice=twice,
    )
