"""A record in flight."""

from collections.abc import Sequence
from contextvars import ContextVar
from datetime import datetime
from enum import IntEnum
from math import inf
from typing import Any

from worker.engine.routes import Route
from worker.rules.entries import Origin, Plan
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.rules.results import Result
from worker.rules.writes import Place

# What a record costs beyond its value and key: objects and headers.
_OVERHEAD = 512


class Stage(IntEnum):
    """How far an item has come."""

    LINED_UP = 0  # in its strand, not offered yet
    OFFERED = 1  # in a claim call or its queue
    WAITING = 2  # for another claim of its key, or for its due time
    CLAIMED = 3  # may run when it is first in its strand
    RUNNING = 4
    ENDED = 5  # its outcome is decided, perhaps not durable yet


class Item:
    """One record in flight. Most that can be said of one is the same for nearly all: those are the class's defaults."""

    stage = Stage.LINED_UP
    finished = False
    fence = 0
    attempts = 0
    crashes = 0
    failed_at: datetime | None = None
    ahead: "Item | None" = None
    next: "Item | None" = None
    strand: Any = None
    asked_at = 0.0
    deadline = 0.0
    claimed_at = 0.0
    waiting_since = 0.0
    out_of_order = False
    parked: Place | None = None
    parked_for: str | None = None  # why it was, if this record comes from the parking lot

    # Set by the intake once the record is routed and its key is known.
    route: Route = None  # type: ignore[assignment]
    origin: Origin
    message: Any
    id: bytes
    key: bytes
    tenant: bytes | None = None
    fingerprint: bytes | None
    stored_tenant: bytes | None = None
    stored_key: bytes | None = None

    result: Result  # set when its handler has ended with one
    trace: Sequence[tuple[str, bytes]] = ()  # while tracing: the context that goes out with its results

    def __init__(self, record: Record, lane: Lane | None) -> None:
        value, key = record.value, record.key
        self.record = record
        self.lane = lane
        self.offset = record.offset
        # About how many bytes it keeps.
        self.size = _OVERHEAD + (0 if value is None else len(value)) + (0 if key is None else len(key))

    @property
    def plan(self) -> Plan:
        return self.route.plan

    @property
    def ttl(self) -> float:
        return self.route.plan.ttl

    @property
    def first(self) -> bool:
        """Whether nothing of its strand is ahead of it."""
        return self.ahead is None

    @property
    def has_begun(self) -> bool:
        """Whether its handler runs; one that still waits for a thread or a connection has no deadline yet."""
        return self.stage is Stage.RUNNING and self.deadline < inf

    @property
    def may_claim(self) -> bool:
        """Whether the item may be claimed: it is first in its strand, or so near behind the first that with it at most
        two have claims and have not started; those ahead of it have theirs.

        Behind anything else it would hold a claim, and room, that the one ahead may need to get on.
        """
        ahead = self.ahead
        if ahead is None:
            return True
        if ahead.ahead is None:
            return ahead.stage is Stage.CLAIMED or ahead.stage is Stage.RUNNING
        first = ahead.ahead
        return ahead.stage is Stage.CLAIMED and first.ahead is None and first.has_begun

    @property
    def revoked(self) -> bool:
        return self.lane is not None and self.lane.revoked

    def forget(self) -> None:
        """Let go of what a finished item behind a gap no longer needs: only its offset counts now."""
        self.record = self.message = self.result = None  # type: ignore[assignment]


# The item whose handler runs here: in its own task, in tasks and threads it starts; for log lines that do not say.
CURRENT: ContextVar[Item | None] = ContextVar("oncebox_item", default=None)
