"""The worker: keeps records moving between the consumer and the pipeline, and stops in a stated order."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from worker.engine.pipeline import Pipeline
from worker.engine.ports import Notice
from worker.errors import ServiceUnavailable
from worker.rules.lanes import Lane, Progress, remember_forgotten
from worker.rules.record import Record

# Finished records behind one that takes long cost only a little each; more than this stops reading the partition.
_SPAN = 50_000
# More than this, decoded in one step of the loop, would keep handlers waiting that could go on or start.
_PORTION = 32
# What an answer of the ledger takes through its tasks, from the socket to the next statement. With one turn of the loop
# between two portions, each of these steps would wait for a portion, and the claims in flight for all of them.
_TURNS = 6
_TICK = 0.1
_FLUSH = 10.0


class Consumer(Protocol):
    """The member of the group."""

    @property
    def lanes(self) -> list[Lane]: ...
    async def poll(
        self, lanes: Sequence[Lane], *, most: int, wait_ms: int
    ) -> list[tuple[Lane, Sequence[Record], int]]: ...
    async def commit(self, *, closing: bool = False) -> None: ...
    async def measure(self, lanes: Sequence[Lane]) -> dict[Lane, int]: ...


class Feeds(Protocol):
    """What is known about the progress of consumer groups."""

    async def moment(self) -> datetime: ...
    async def sample(self, group: str, moment: datetime, progress: Sequence[Progress]) -> None: ...
    async def forgotten(
        self, topic: str, operations: Collection[int], topic_id: bytes | None
    ) -> dict[int, dict[int, int]]: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is read ahead, and how often things happen."""

    buffer: int
    buffer_bytes: int
    fetch: int
    drain: float
    commit_every: float = 0.2


class Worker:
    """Reads, ticks and commits until it is told to stop."""

    def __init__(self, pipeline: Pipeline, pace: Pace, *, beat: Callable[[], None], notice: Notice) -> None:
        self._pipeline = pipeline
        self._pace = pace
        self._beat = beat
        self._notice = notice
        self._stopping = asyncio.Event()
        self.assigned = asyncio.Event()
        self._taken = 0  # records since others had their turn
        self.read_at = 0.0  # when the reading loop went round last, by the loop's clock
        self.consumer: Consumer

    def lanes_assigned(self, lanes: Sequence[Lane]) -> None:
        """New lanes have their places: read them."""
        self._notice("partitions_assigned", partitions=[str(lane) for lane in lanes])
        self._pipeline.room.set()
        self.assigned.set()

    async def lanes_revoked(self, lanes: Sequence[Lane]) -> None:
        """Stop starting at once, give handlers a bounded time, make outcomes durable, commit.

        A handler that outlives this keeps its claim; the next owner of the partition waits for its result.
        """
        self._pipeline.revoke(lanes)
        await self._until(lambda: not self._pipeline.running(lanes) and not self._pipeline.busy, self._pace.drain)
        try:
            await asyncio.wait_for(self.consumer.commit(closing=True), _FLUSH / 2)
        except TimeoutError:
            self._notice("commit_timed_out", next="the records come again and are answered from their results")
        self._notice("partitions_revoked", partitions=[str(lane) for lane in lanes])

    async def read(self) -> None:
        """Fetch whatever has room, for ever."""
        pipeline, pace, loop = self._pipeline, self._pace, asyncio.get_running_loop()
        while not self._stopping.is_set():
            self.read_at = loop.time()
            lanes = self.consumer.lanes
            ready, full = self._ready(lanes)
            if not ready:
                pipeline.room.clear()
                await self._wait_for_room()
                continue
            # An idle lane must not keep us from one that is full now and has room in a moment.
            fetched = await self.consumer.poll(ready, most=pace.fetch, wait_ms=5 if full else 200)
            # Before any of it is taken: while one lane's is, another may be held or moved.
            places = [(lane.position, lane.held) for lane, _, _ in fetched]
            for (lane, records, position), place in zip(fetched, places, strict=True):
                await self._take(lane, records, position, place)
            pipeline.all_taken()
            # A poll that finds something in the client's buffer does not let the loop go round.
            await asyncio.sleep(0)

    async def _take(
        self, lane: Lane, records: Sequence[Record], position: int, fetched_at: tuple[int, str | None]
    ) -> None:
        """Pass on what one fetch delivered, in portions between which handlers move.

        A lane that has been revoked, held or moved since the fetch gets no more of it: its position never passed the
        rest.
        """
        (at, held), start = fetched_at, 0
        while not lane.revoked and (lane.position, lane.held) == (at, held):
            portion = records[start : start + _PORTION]
            start += len(portion)
            at = portion[-1].offset + 1 if start < len(records) else position
            self._pipeline.take(lane, portion, at, more=True)
            self._taken += len(portion)
            if self._taken >= _PORTION:
                self._taken = 0
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            if start == len(records):
                return

    def _ready(self, lanes: Sequence[Lane]) -> tuple[list[Lane], bool]:
        paused = self._pipeline.wishes.paused_topics
        open_lanes = [lane for lane in lanes if not lane.revoked and lane.held is None and lane.topic not in paused]
        if not open_lanes:
            return [], False
        share = max(64, self._pace.buffer // len(open_lanes))
        share_bytes = self._pace.buffer_bytes // len(open_lanes)
        # A lane full of records that are kept back is read no further, and takes no room from the others meanwhile.
        moving = [n for n in open_lanes if not n.kept_back or (n.unfinished < share and n.bytes < share_bytes)]
        if sum(lane.unfinished for lane in moving) >= self._pace.buffer:
            return [], True
        if sum(lane.bytes for lane in moving) >= self._pace.buffer_bytes:
            return [], True
        ready = [lane for lane in moving if lane.unfinished < share and len(lane.watermark) < _SPAN]
        return ready, len(ready) < len(moving)

    async def _wait_for_room(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._pipeline.room.wait()

    async def tick(self) -> None:
        """Say that the loop moves, and let deadlines pass, for ever."""
        while True:
            self._beat()
            self._pipeline.tick()
            await asyncio.sleep(_TICK)

    async def commit(self) -> None:
        """Commit what has moved, several times a second, for ever."""
        while True:
            await asyncio.sleep(self._pace.commit_every)
            await self.consumer.commit()

    async def sample(self, feeds: Feeds, group: str, operations: Mapping[str, Collection[int]], every: float) -> None:
        """Store how far each lane has come, and learn what may have been forgotten, for ever."""
        while True:
            await self.assigned.wait()
            try:
                await self._sample(feeds, group, operations)
            except (ServiceUnavailable, TimeoutError) as error:
                self._notice("sample_delayed", error=f"{type(error).__name__}: {error}", next="trying again")
            await asyncio.sleep(every)

    async def _sample(self, feeds: Feeds, group: str, operations: Mapping[str, Collection[int]]) -> None:
        lanes = [lane for lane in self.consumer.lanes if not lane.revoked and lane.held is None]
        for topic in {lane.topic for lane in lanes}:
            await remember_forgotten(feeds, topic, operations[topic], lanes)
        # In this order, however long each step takes: at that moment the watermark was reached, and the log no longer
        # than it is found to be.
        watermarks = {lane: lane.committed for lane in lanes if lane.committed is not None}
        moment = await feeds.moment()
        ends = await self.consumer.measure(list(watermarks))
        await feeds.sample(group, moment, [Progress(lane, end, watermarks[lane]) for lane, end in ends.items()])

    async def reach(self, ends: dict[tuple[str, int], int]) -> list[Lane]:
        """Wait until Kafka has acknowledged a watermark at or past each of these offsets.

        Lanes that are held with nothing in flight are given back: they get no further by themselves.
        """
        left = dict(ends)
        held: dict[tuple[str, int], Lane] = {}
        while left:
            held = {}
            for lane in self.consumer.lanes:
                place = (lane.topic, lane.partition)
                if place not in left:
                    continue
                if lane.committed is not None and lane.committed >= left[place]:
                    del left[place]
                elif lane.topic in self._pipeline.wishes.paused_topics:
                    # What is paused is not waited for, as what is parked is not.
                    del left[place]
                elif lane.held is not None and not lane.unfinished:
                    held[place] = lane
            if left.keys() == held.keys():
                break
            await asyncio.sleep(_TICK)
        return list(held.values())

    async def stop(self) -> None:
        """Stop reading; let handlers end within the drain time, then ask them to; make outcomes durable; commit."""
        self._stopping.set()
        pipeline = self._pipeline
        pipeline.room.set()  # the reader may wait for it
        pipeline.stop(self.consumer.lanes)
        if not await self._until(lambda: not pipeline.running(), self._pace.drain):
            self._notice("drain_time_over", handlers=len(pipeline.running()), next="cancelling them")
            pipeline.cancel(pipeline.running())
            await self._until(lambda: not pipeline.running(), _FLUSH / 2)
        await self._until(lambda: not pipeline.busy and not pipeline.open_claims, _FLUSH)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.01)
        return True
