"""Telling beforehand what would become of records: the same rules as on a record's way, and no claim, no write."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from worker.engine.intake import Intake
from worker.engine.items import Item
from worker.engine.routes import Route
from worker.rules.document import Document
from worker.rules.entries import Answer, Row, answer
from worker.rules.fingerprint import FORMAT
from worker.rules.reasons import Refused
from worker.rules.record import Record
from worker.rules.tally import REPLAY, RUN, UNKNOWN, WAIT

LookUp = Callable[[Sequence[bytes]], Awaitable[dict[bytes, Row]]]
Forgotten = Callable[[Item], bool]

_CLASSES = {
    Answer.REPLAY: REPLAY,
    Answer.MISUSE: "misuse",
    Answer.WAIT: WAIT,
    Answer.DOUBT: UNKNOWN,
    Answer.DUE: RUN,
    Answer.LATER: WAIT,
    Answer.EXHAUSTED: "retries_exhausted",
    Answer.CRASH_LOOP: "crash_loop",
}


@dataclass(slots=True, eq=False)
class Read:
    """A record as the intake sees it: with an identity, or refused. Nobody changes it."""

    item: Item
    refused: str | None = None

    @property
    def route(self) -> Route | None:
        return self.item.route

    @property
    def tenant(self) -> str | None:
        """The tenant, where it may be shown."""
        if self.refused is not None or self.item.tenant is None:
            return None
        return "(private)" if self.item.route.private else self.item.tenant.decode(errors="backslashreplace")

    @property
    def place(self) -> str:
        record = self.item.record
        return f"{record.topic}/{record.partition}@{record.offset}"


def read_records(intake: Intake, records: Iterable[Record], route: Route | None = None) -> list[Read]:
    """Decode, route and identify records; with a route, by that handler whatever their topic."""
    return [_read(intake, record, route) for record in records]


def _read(intake: Intake, record: Record, route: Route | None) -> Read:
    item = Item(record, None)
    if route is not None:
        item.route = route
    try:
        intake.read(item)
    except Refused as refused:
        return Read(item, refused.reason)
    except Exception:
        # As in the pipeline: a validator of the user's model may raise anything.
        return Read(item, "invalid_payload")
    return Read(item)


class Classifier:
    """Classifies records in the order in which they would be read.

    A key that would run is remembered, up to `memory` of them: its next record would be answered from the result.
    """

    def __init__(
        self, look_up: LookUp, forgotten: Forgotten, *, crash_cap: int, resets: bool = False, memory: int | None = None
    ) -> None:
        self._look_up = look_up
        self._forgotten = forgotten
        self._crash_cap = crash_cap
        self._resets = resets  # as a redrive does: no attempts, no crashes
        self._memory = memory
        self._first: dict[bytes, bytes | None] = {}

    async def classify(self, reads: Sequence[Read]) -> list[str]:
        """The class of each record: run, replay, wait, unknown, or the reason for a dead letter."""
        ids = {read.item.id for read in reads if read.refused is None}
        rows = await self._look_up(list(ids)) if ids else {}
        return [read.refused or self._judge(read.item, rows.get(read.item.id)) for read in reads]

    def _judge(self, item: Item, row: Row | None) -> str:
        class_ = RUN if row is None else self._answer(item, row)
        if class_ != RUN:
            return class_
        first = self._first
        if item.id in first:
            return REPLAY if first[item.id] == item.fingerprint else "misuse"
        if row is None and self._forgotten(item):
            return "beyond_ttl"
        first[item.id] = item.fingerprint
        if self._memory is not None and len(first) > self._memory:
            del first[next(iter(first))]
        return RUN

    def _answer(self, item: Item, row: Row) -> str:
        fingerprint = item.fingerprint
        if row.format != FORMAT:
            fingerprint = item.route.fingerprint.digest_as(row.format, Document(item.record.value))
        found = answer(row, fingerprint, item.plan, self._crash_cap)
        if self._resets and found in (Answer.EXHAUSTED, Answer.CRASH_LOOP, Answer.LATER):
            return RUN
        return _CLASSES[found]
