"""A backlog that feeds a worker as a consumer group would: read by a window, chosen, limited in rate, kept as a job.

Progress is the contiguous watermark of each partition, stored after the outcomes below it are durable: a process that
dies goes on there, and what it had finished beyond is answered from its result.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from worker.engine.classify import Classifier, Read, read_records
from worker.engine.intake import Intake
from worker.engine.ports import Notice
from worker.engine.throttle import Throttle
from worker.errors import ServiceUnavailable
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.rules.tally import RUN
from worker.rules.windows import Span

Fetched = tuple[Lane, Sequence[Record], int]
Choose = Callable[[Record], bool]
Keep = Callable[[Mapping[int, int]], Awaitable[bool]]
_READ = "read to its end"
_PATIENCE = 0.2


class Window(Protocol):
    """Who reads spans of a topic."""

    async def poll(
        self, partitions: Sequence[int], *, most: int, wait_ms: int
    ) -> list[tuple[int, Sequence[Record], int]]: ...


class Limit:
    """Lets through at once what would not run, and what would at a rate; keys that are under way count once."""

    def __init__(self, throttle: Throttle, classifier: Classifier, intake: Intake) -> None:
        self.throttle = throttle
        self._classifier = classifier
        self._intake = intake

    async def judge(self, records: Sequence[Record]) -> list[tuple[Record, bool]]:
        """Each record, and whether it would run."""
        reads: list[Read] = read_records(self._intake, records)
        classes = await self._classifier.classify(reads)
        return [(record, class_ == RUN) for record, class_ in zip(records, classes, strict=True)]


class Backlog:
    """The records of a window, as a worker reads them. `keep` stores progress and says whether to go on."""

    def __init__(
        self,
        window: Window,
        topic: str,
        spans: Sequence[Span],
        keep: Keep,
        notice: Notice,
        *,
        choose: Choose | None = None,
        limit: Limit | None = None,
    ) -> None:
        self._window = window
        self._keep = keep
        self._notice = notice
        self._choose = choose
        self._limit = limit
        self._lanes = {s.partition: Lane(topic, s.partition, s.begin) for s in spans}
        self._ends = {s.partition: s.end for s in spans}
        self._behind = {s.partition: s.begin for s in spans}  # position behind all that was fetched
        self._pending: dict[int, deque[tuple[Record, bool]]] = {s.partition: deque() for s in spans}
        self.left_out = 0
        self.told_to_stop = asyncio.Event()
        for span in spans:
            self._lanes[span.partition].committed = span.begin
            self._close_if_read(span.partition)

    @property
    def lanes(self) -> list[Lane]:
        return list(self._lanes.values())

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        return {(lane.topic, p): self._ends[p] for p, lane in self._lanes.items()}

    @property
    def finished(self) -> dict[int, int]:
        """Below which offset everything is finished, by partition."""
        return {p: lane.watermark.advance() for p, lane in self._lanes.items()}

    async def poll(self, lanes: Sequence[Lane], *, most: int, wait_ms: int) -> list[Fetched]:
        """What the worker may take next."""
        wanted = [lane.partition for lane in lanes]
        if any(self._pending.values()):
            # Others have their turn soon: an idle partition must not make them late.
            wait_ms = min(wait_ms, 5)
        empty = [p for p in wanted if not self._pending[p] and self._behind[p] < self._ends[p]]
        fetched: list[Fetched] = []
        for partition, records, position in await self._window.poll(empty, most=most, wait_ms=wait_ms):
            chosen = records if self._choose is None else [r for r in records if self._choose(r)]
            self.left_out += len(records) - len(chosen)
            self._behind[partition] = position
            if self._limit is None:
                fetched.append((self._lanes[partition], chosen, position))
            elif chosen:
                self._pending[partition].extend(await self._limit.judge(chosen))
            else:
                fetched.append((self._lanes[partition], (), position))
        if self._limit is not None:
            fetched += await self._released(wanted, self._limit.throttle)
        for lane, _, position in fetched:
            if position >= self._ends[lane.partition]:
                lane.held = _READ
        return fetched

    async def _released(self, wanted: Sequence[int], throttle: Throttle) -> list[Fetched]:
        """What is pending up to the first record of each partition that would run and has to wait for its turn."""
        waiting = [p for p in wanted if self._pending[p]]
        if waiting and all(self._pending[p][0][1] for p in waiting):
            await throttle.some(_PATIENCE)
        fetched: list[Fetched] = []
        for partition in waiting:
            pending = self._pending[partition]
            records: list[Record] = []
            while pending and (not pending[0][1] or throttle.take()):
                records.append(pending.popleft()[0])
            if records:
                position = pending[0][0].offset if pending else self._behind[partition]
                fetched.append((self._lanes[partition], records, position))
        return fetched

    async def commit(self, *, closing: bool = False) -> None:
        """Store the watermarks; while Postgres is away they are kept for the next time."""
        positions = self.finished
        try:
            go_on = await self._keep(positions)
        except ServiceUnavailable as error:
            self._notice("progress_delayed", error=str(error), next="trying again")
            return
        for partition, position in positions.items():
            self._lanes[partition].committed = position
        if not go_on:
            self.told_to_stop.set()

    async def measure(self, lanes: Sequence[Lane]) -> dict[Lane, int]:
        return {lane: self._ends[lane.partition] for lane in lanes}

    def _close_if_read(self, partition: int) -> None:
        lane = self._lanes[partition]
        if lane.position >= self._ends[partition]:
            lane.held = _READ
