"""A record in flight."""

from datetime import datetime
from enum import IntEnum
from typing import Any

from worker.engine.routes import Route
from worker.rules.document import Document
from worker.rules.entries import Plan
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.rules.writes import Place


class Stage(IntEnum):
    """How far an item has come."""

    LINED_UP = 0  # in its strand, not offered yet
    OFFERED = 1  # in a claim call or its queue
    WAITING = 2  # for another claim of its key, or for its due time
    CLAIMED = 3  # may run when it is first in its strand
    RUNNING = 4
    ENDED = 5  # its outcome is decided, perhaps not durable yet


class Item:
    """One record in flight."""

    __slots__ = (
        "ahead",
        "asked_at",
        "attempts",
        "claimed_at",
        "crashes",
        "deadline",
        "document",
        "failed_at",
        "fence",
        "fingerprint",
        "finished",
        "format",
        "id",
        "key",
        "lane",
        "message",
        "next",
        "offset",
        "out_of_order",
        "parked",
        "parked_for",
        "partition",
        "plan",
        "record",
        "route",
        "size",
        "stage",
        "stored_key",
        "stored_tenant",
        "strand",
        "tenant",
        "topic_number",
        "waiting_since",
    )

    def __init__(self, record: Record, lane: Lane | None, size: int) -> None:
        self.record = record
        self.lane = lane
        self.offset = record.offset
        self.partition = record.partition
        self.size = size
        self.finished = False
        self.stage = Stage.LINED_UP
        self.fence = 0
        self.attempts = 0
        self.crashes = 0
        self.failed_at: datetime | None = None
        self.ahead: Item | None = None
        self.next: Item | None = None
        self.strand: Any = None
        self.asked_at = 0.0
        self.deadline = 0.0
        self.claimed_at = 0.0
        self.waiting_since = 0.0
        self.out_of_order = False
        self.parked: Place | None = None
        self.parked_for: str | None = None  # why it was, if this record comes from the parking lot
        # Set by the intake once the record is routed and its key is known.
        self.route: Route = None  # type: ignore[assignment]
        self.document: Document
        self.message: Any
        self.id: bytes
        self.key: bytes
        self.tenant: bytes | None
        self.fingerprint: bytes | None
        self.plan: Plan
        self.topic_number: int | None
        self.stored_tenant: bytes | None
        self.stored_key: bytes | None
        self.format: int

    @property
    def first(self) -> bool:
        """Whether nothing of its strand is ahead of it."""
        return self.ahead is None

    @property
    def may_claim(self) -> bool:
        """Whether the item may be claimed: it is first in its strand, or right behind one that has its claim.

        Behind anything else it would hold a claim, and room, that the one ahead may need to get on.
        """
        ahead = self.ahead
        return ahead is None or (ahead.ahead is None and Stage.CLAIMED <= ahead.stage <= Stage.RUNNING)

    @property
    def revoked(self) -> bool:
        return self.lane is not None and self.lane.revoked

    def forget(self) -> None:
        """Let go of what a finished item behind a gap no longer needs: only its offset counts now."""
        self.record = self.document = self.message = None  # type: ignore[assignment]
