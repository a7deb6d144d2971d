"""Reporting: the bytes of an entry in doubt are found, for its reconciler and, when nobody knows, for its dead letter.

From the parking lot, or read back from Kafka, and then only if key and fingerprint computed from them are the entry's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from worker.engine.calling import Caller
from worker.engine.intake import Intake
from worker.engine.items import Item
from worker.engine.letters import Letters, cut
from worker.engine.ports import Claims, Doubts, Notice, Originals, ParkingLot, Publisher
from worker.engine.routes import Route
from worker.errors import ServiceUnavailable
from worker.rules.claims import State
from worker.rules.context import Context
from worker.rules.document import Document
from worker.rules.doubts import Doubt, Happened
from worker.rules.fingerprint import FORMAT
from worker.rules.outgoing import Outgoing, TooLarge
from worker.rules.reasons import Refused
from worker.rules.record import Record
from worker.rules.writes import Parking

# How many of the latest probes a dead letter tells of.
_TOLD = 30
_TRY_AGAIN = 30.0


@dataclass(frozen=True, slots=True)
class Means:
    """What it takes to ask about doubts and to report them."""

    routes: Sequence[Route]
    doubts: Doubts
    claims: Claims
    parking: ParkingLot
    publisher: Publisher
    originals: Originals
    letters: Letters
    caller: Caller
    notice: Notice


class Reporter:
    """Knows what is kept about entries in doubt, and tells it."""

    def __init__(self, means: Means) -> None:
        self._intake = Intake(means.routes)
        self._doubts = means.doubts
        self._claims = means.claims
        self._parking = means.parking
        self._publisher = means.publisher
        self._originals = means.originals
        self._letters = means.letters
        self._caller = means.caller
        self._notice = means.notice
        self._written: set[tuple[bytes, int]] = set()  # letters that are out while their reply is not

    async def context(self, route: Route, doubt: Doubt) -> Context:
        """What a reconciler may know; the record is looked for in Kafka only at the first probe."""
        item = self._kept(route, doubt)
        if item is None and not doubt.probes:
            try:
                item = await self._read_back(doubt)
            except ServiceUnavailable as error:
                self._notice("original_not_read", error=str(error), next="asking without the record")
        known = item is not None
        item = item or _bare(route, doubt, Record(doubt.topic or "", doubt.partition or 0, doubt.offset or 0))
        item.fence, item.attempts, item.crashes = doubt.fence, doubt.attempts, doubt.crashes
        return self._caller.context(item, record=known)

    async def report(self, route: Route, doubt: Doubt) -> None:
        """Write the entry's dead letter and mark it reported once that is acknowledged; it stays unknown.

        A death in between gives a second letter, never none.
        """
        try:
            item = self._kept(route, doubt) or await self._read_back(doubt)
        except ServiceUnavailable as error:
            self._notice("original_not_read", error=str(error), next="trying again")
            await self._doubts.put_off(doubt, _TRY_AGAIN)
            return
        if item is None:
            source = f"{doubt.topic}/{doubt.partition}@{doubt.offset}"
            alert = "in doubt, and its record cannot be found any more: settle it by hand"
            self._notice("doubt_without_record", operation=route.name, fence=doubt.fence, source=source, alert=alert)
            await self._doubts.reported(doubt, "its record cannot be found any more")
            return
        history = [one for one in await self._doubts.history(doubt.id) if one.event == "probe"]
        row = (await self._claims.look_up([doubt.id])).get(doubt.id)
        if row is None or row.state is not State.UNKNOWN or row.fence != doubt.fence:
            return
        item.attempts, item.crashes, item.failed_at = row.attempts, row.crashes, row.failed_at
        detail = _detail(doubt, history)
        letter = self._letters.dead_letter(item, "unknown", detail, row)
        letter = replace(letter, headers=[*letter.headers, ("oncebox.probes", _told(history))])
        if await self._write(doubt, letter, self._letters.refusal_reply(item, "unknown", detail)):
            await self._doubts.reported(doubt, f"dead letter in {letter.topic}")
            alert = "nobody knows whether it was executed: settle it by hand"
            self._notice("doubt_reported", operation=route.name, fence=doubt.fence, topic=letter.topic, alert=alert)
        else:
            await self._doubts.put_off(doubt, _TRY_AGAIN)

    async def _write(self, doubt: Doubt, letter: Outgoing, reply: Outgoing | None) -> bool:
        """Whether letter and reply are both acknowledged; a letter that is need not be written again for its reply."""
        claim = (doubt.id, doubt.fence)
        if claim not in self._written:
            [problem] = await self._publisher.publish([letter])
            if isinstance(problem, TooLarge):
                [problem] = await self._publisher.publish([cut(letter)])
            if problem is not None:
                self._notice("letter_not_written", topic=letter.topic, error=str(problem), next="trying again")
                return False
        self._written.add(claim)
        if reply is not None:
            [problem] = await self._publisher.publish([reply])
            if problem is not None:
                self._notice("letter_not_written", topic=reply.topic, error=str(problem), next="trying again")
                return False
        self._written.discard(claim)
        return True

    def _kept(self, route: Route, doubt: Doubt) -> Item | None:
        """The parked record. One that the handler can no longer read was its entry's when it was parked."""
        if doubt.parked is None:
            return None
        try:
            return self._identified(doubt.parked, doubt)
        except Refused:
            return _bare(route, doubt, doubt.parked)

    async def _read_back(self, doubt: Doubt) -> Item | None:
        """The original, if Kafka still has it and it is the entry's; parked then, so that any verdict finds it."""
        if doubt.topic is None or doubt.partition is None or doubt.offset is None:
            return None
        record = await self._originals.read(doubt.topic, doubt.partition, doubt.offset)
        if record is None:
            return None
        try:
            item = self._identified(record, doubt)
        except Refused:
            return None
        if item is not None:
            await self._parking.park([Parking(record, "unknown", doubt.id, doubt.operation)])
        return item

    def _identified(self, record: Record, doubt: Doubt) -> Item | None:
        """The record as a message, if it is the entry's; raises `Refused` if it is none that a handler reads."""
        item = Item(record, None)
        try:
            self._intake.read(item)
        except Refused:
            raise
        except Exception as error:
            raise Refused("invalid_payload", f"its validation raised {type(error).__name__}") from error
        fingerprint = item.fingerprint
        if doubt.format != FORMAT:
            fingerprint = item.route.fingerprint.digest_as(doubt.format, Document(record.value))
        return item if (item.id, fingerprint) == (doubt.id, doubt.fingerprint) else None


def _bare(route: Route, doubt: Doubt, record: Record) -> Item:
    """An item of which only what its entry says is known."""
    item = Item(record, None)
    item.route = route
    item.id, item.key, item.tenant = doubt.id, doubt.key or b"", doubt.tenant
    item.fingerprint = doubt.fingerprint
    return item


def _detail(doubt: Doubt, history: Sequence[Happened]) -> str:
    asked = f"asked {len(history)} times" if history else "nobody to ask"
    last = f", the last answer: {history[-1].detail}" if history else ""
    return f"in doubt for {doubt.age:.0f} s, {asked}{last}"


def _told(history: Sequence[Happened]) -> bytes:
    return orjson.dumps([{"at": one.at, "said": one.detail, "fence": one.fence} for one in history[-_TOLD:]])
