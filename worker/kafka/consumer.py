"""The member of a consumer group: reads lanes, and commits their watermarks.

Membership is not a lock: an evicted member may go on reading what it has buffered while another reads the same.
Only the claim in the ledger decides who runs.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, OffsetOutOfRangeError

from worker.errors import ServiceUnavailable
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.listing import list_topics
from worker.kafka.places import Places
from worker.kafka.security import client_options
from worker.kafka.stopping import stop_consumer
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.settings import Settings

Notice = Callable[..., None]
Fetched = tuple[Lane, Sequence[Record], int]
_NO_LIMIT_MS = 2**31 - 1
_READ_ERRORS = 3
_READ_SINGLY = 100


class Owner(Protocol):
    """Who works on the lanes."""

    def lanes_assigned(self, lanes: Sequence[Lane]) -> None: ...
    async def lanes_revoked(self, lanes: Sequence[Lane]) -> None: ...


class Consumer:
    """One consumer of a group, from start to stop. Commits name explicit offsets, one call at a time."""

    def __init__(self, settings: Settings, topics: Sequence[str], owner: Owner, places: Places, notice: Notice) -> None:
        self._settings = settings
        self._topics = sorted(topics)
        self._owner = owner
        self._places = places
        self._notice = notice
        self._lanes: dict[TopicPartition, Lane] = {}
        self._placing: asyncio.Task[None] | None = None
        self._committing = asyncio.Lock()
        self._errors: dict[TopicPartition, int] = {}
        self.rebalances = 0
        kafka = settings.kafka
        self._consumer: Any = AIOKafkaConsumer(
            **client_options(kafka),
            group_id=kafka.group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            session_timeout_ms=_ms(kafka.session_timeout),
            heartbeat_interval_ms=_ms(kafka.heartbeat_interval),
            rebalance_timeout_ms=_ms(settings.rebalance_timeout),
            # Our own watchdogs look at progress; the client's would leave the group in the middle of a long drain.
            max_poll_interval_ms=_NO_LIMIT_MS,
            fetch_max_bytes=kafka.fetch_max_bytes,
            max_partition_fetch_bytes=kafka.partition_fetch_bytes,
        )
        # Subscribed before the start and never again: a second call can kill the client's fetch task silently.
        self._consumer.subscribe(self._topics, listener=_Listener(self))

    @property
    def lanes(self) -> list[Lane]:
        """What is assigned to us and has a place to start from."""
        return list(self._lanes.values())

    @property
    def reading(self) -> bool:
        """Whether the client still fetches: its fetch task can die while everything else looks alive."""
        fetcher = self._consumer._fetcher
        return fetcher is None or not fetcher._fetch_task.done()

    @property
    def placed(self) -> bool:
        """Whether the group has given us what it wants us to read, perhaps nothing, and each lane has its place."""
        return self._placing is not None and self._placing.done() and not self._placing.cancelled()

    def seen_end(self, lane: Lane) -> int:
        """Where the lane's log ended when it was fetched last; 0 when that is not known."""
        tp = TopicPartition(lane.topic, lane.partition)
        return self._consumer.last_stable_offset(tp) or 0 if tp in self._consumer.assignment() else 0

    async def refresh(self) -> None:
        """Ask any broker about the cluster; raises ServiceUnavailable when none answers."""
        if not await self._consumer._client.force_metadata_update():
            raise ServiceUnavailable("kafka", "Kafka did not answer: no broker could be asked")

    async def start(self) -> None:
        async with explain_bootstrap(self._settings.kafka):
            await self._consumer.start()

    async def poll(self, lanes: Sequence[Lane], *, most: int, wait_ms: int) -> list[Fetched]:
        """Fetch from these lanes; positions are read in the same step. An error gives nothing, and loses nothing."""
        wanted = {tp: lane for tp, lane in self._lanes.items() if lane in lanes}
        if not wanted:
            return []
        try:
            found = await self._consumer.getmany(*wanted, timeout_ms=wait_ms, max_records=most)
        except OffsetOutOfRangeError as error:
            await self._out_of_range(error)
            return []
        except Exception as error:
            # Not only the client's own errors: a header name that is no UTF-8 raises UnicodeDecodeError, for ever.
            self._rewind(error)
            return await self._one_by_one(wanted)
        return await self._fetched(wanted, found)

    async def _fetched(self, wanted: Mapping[TopicPartition, Lane], found: Mapping[Any, Any]) -> list[Fetched]:
        fetched: list[Fetched] = []
        for tp, lane in wanted.items():
            records = found.get(tp, ())
            if not self._is_current(tp, lane, drained=bool(records)):
                continue
            position = await self._consumer.position(tp)
            if records or position != lane.position:
                fetched.append((lane, records, position))
        return fetched

    def _is_current(self, tp: TopicPartition, lane: Lane, *, drained: bool) -> bool:
        """Whether the lane we asked for is still ours.

        A call that waited through a rebalance drains records of the new assignment: the client's position has moved
        past them, so the new lane must go back to its own, or it would commit what nobody has seen.
        """
        current = self._lanes.get(tp)
        if current is lane and not lane.revoked:
            return True
        if drained and current is not None and not current.revoked:
            self._consumer.seek(tp, current.position)
        return False

    async def commit(self, *, closing: bool = False) -> None:
        """Commit the watermarks that have moved; a failure is told and leaves them for the next time.

        `closing` is the last commit of an assignment: it includes lanes that are being revoked.
        """
        async with self._committing:
            offsets: dict[TopicPartition, int] = {}
            for tp, lane in self._lanes.items():
                watermark = lane.watermark.advance()
                # A held lane was read up to its watermark, unless it never had a place that fits its log.
                placed = lane.held is None or lane.committed is not None
                if (closing or not lane.revoked) and placed and watermark != lane.committed:
                    assert 0 <= watermark <= lane.position
                    offsets[tp] = watermark
            if not offsets:
                return
            lanes = {tp: self._lanes[tp] for tp in offsets}
            try:
                await self._consumer.commit(offsets)
            except (CommitFailedError, IllegalStateError) as error:
                cause = error.__cause__ or error
                self._notice("commit_refused", why=type(cause).__name__, next="the group is being rebalanced")
                return
            except KafkaError as error:
                self._notice("commit_failed", error=f"{type(error).__name__}: {error}", next="trying again")
                return
            for tp, lane in lanes.items():
                lane.committed = offsets[tp]

    def go_on(self, lane: Lane, offset: int) -> None:
        """Read a held lane on from an offset at or above its position; what is in flight below it ends first."""
        tp = TopicPartition(lane.topic, lane.partition)
        if self._lanes.get(tp) is not lane or lane.revoked:
            return
        lane.receive((), offset)
        lane.held = None
        self._errors.pop(tp, None)
        self._consumer.seek(tp, offset)
        self._consumer.resume(tp)

    async def end_offsets(self, lanes: Sequence[Lane]) -> dict[Lane, int]:
        """Where the log of each lane ends now, as a read_committed reader sees it."""
        wanted = {TopicPartition(lane.topic, lane.partition): lane for lane in lanes}
        if not wanted:
            return {}
        timeout = self._settings.kafka.request_timeout.total_seconds()
        try:
            ends = await asyncio.wait_for(self._consumer.end_offsets(list(wanted)), timeout)
        except (KafkaError, TimeoutError) as error:
            raise ServiceUnavailable("kafka", f"Kafka did not answer: {type(error).__name__}") from error
        return {wanted[tp]: offset for tp, offset in ends.items()}

    async def measure(self, lanes: Sequence[Lane]) -> dict[Lane, int]:
        """As end_offsets, of those that still are the log they were; the others are held."""
        ends = await self.end_offsets(lanes)
        try:
            listed = await list_topics(self._consumer._client, {lane.topic for lane in lanes})
        except KafkaError as error:
            raise ServiceUnavailable("kafka", f"Kafka did not list topics: {type(error).__name__}") from error
        same: dict[Lane, int] = {}
        for lane, end in ends.items():
            found = listed.get(lane.topic)
            if found is not None and None not in (found.id, lane.topic_id) and found.id != lane.topic_id:
                self._hold_lane(lane, "the topic was created anew while it was read")
            elif lane.committed is not None and lane.committed > end:
                self._hold_lane(lane, f"the log ends at {end}, below offset {lane.committed}: it was cut or made anew")
            else:
                same[lane] = end
        return same

    async def place_again(self, lane: Lane) -> None:
        """Find the place of a held lane anew, as an operator decided, and read on; nothing of it may be in flight.

        It comes back as a new lane. A rebalance meanwhile ends this: it finds all places anew.
        """
        assert not lane.unfinished
        tp = TopicPartition(lane.topic, lane.partition)
        if self._lanes.get(tp) is lane and not lane.revoked:
            placing = asyncio.get_running_loop().create_task(self._place([tp]), name="placing again")
            self._placing = placing
            await asyncio.wait([placing])
            if not placing.cancelled():
                placing.result()

    async def stop(self) -> None:
        """Leave the group; never hangs, whatever the broker does. Drain and commit before."""
        if self._placing is not None:
            self._placing.cancel()
        within = self._settings.kafka.request_timeout.total_seconds() + 5
        await stop_consumer(self._consumer, within, self._notice)

    async def revoked(self) -> None:
        """The group takes everything away; called by the client while it waits for us."""
        if self._placing is not None:
            self._placing.cancel()
            self._placing = None
        lanes = self.lanes
        if lanes:
            self.rebalances += 1
            await self._owner.lanes_revoked(lanes)
        self._lanes = {}

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """The group gives us partitions; they are paused until each has its place."""
        if partitions:
            self._consumer.pause(*partitions)
        self._errors = {}
        self._placing = asyncio.get_running_loop().create_task(self._place(sorted(partitions)), name="placing")

    async def _place(self, partitions: Sequence[TopicPartition]) -> None:
        lanes: dict[TopicPartition, Lane] = {}
        for tp, lane in (await self._places.find(self._consumer, partitions)).items():
            if tp not in self._consumer.assignment():
                return
            self._consumer.seek(tp, lane.position)
            if lane.held is None:
                self._consumer.resume(tp)
            else:
                self._notice("partition_held", partition=str(lane), why=lane.held, alert="operator must decide")
            lanes[tp] = lane
        for tp in lanes.keys() & self._lanes.keys():
            self._lanes[tp].revoked = True
        self._lanes = {**self._lanes, **lanes}
        self._owner.lanes_assigned(list(lanes.values()))

    async def _out_of_range(self, error: OffsetOutOfRangeError) -> None:
        for tp in error.args[0]:
            lane = self._lanes.get(tp)
            if lane is not None and lane.held is None:
                why = f"offset {lane.position} is outside the log: retention overtook it, or the topic is new"
                self._hold(tp, lane, why)

    async def _one_by_one(self, wanted: Mapping[TopicPartition, Lane]) -> list[Fetched]:
        """Read each partition alone, record by record, up to one that cannot be read; after three errors it is held.

        What is readable is delivered: so the unreadable record becomes the first of its partition, and stops no other.
        """
        await asyncio.sleep(0.1)
        fetched: list[Fetched] = []
        for tp, lane in wanted.items():
            records: list[Record] = []
            position = lane.position
            while len(records) < _READ_SINGLY and not lane.revoked and self._lanes.get(tp) is lane:
                try:
                    found = await self._consumer.getmany(tp, timeout_ms=50, max_records=1)
                except Exception as error:
                    self._blame(tp, lane, position, error)
                    break
                if not found.get(tp):
                    break
                if not self._is_current(tp, lane, drained=True):
                    break
                records += found[tp]
                position = records[-1].offset + 1
            if not self._is_current(tp, lane, drained=False):
                continue
            if records:
                self._errors.pop(tp, None)
                fetched.append((lane, records, position))
            self._consumer.seek(tp, position)
        return fetched

    def _blame(self, tp: TopicPartition, lane: Lane, position: int, error: Exception) -> None:
        self._errors[tp] = self._errors.get(tp, 0) + 1
        if self._errors[tp] >= _READ_ERRORS:
            self._hold(tp, lane, f"offset {position} cannot be read: {type(error).__name__}: {error}")

    def _hold_lane(self, lane: Lane, why: str) -> None:
        tp = TopicPartition(lane.topic, lane.partition)
        if self._lanes.get(tp) is lane and lane.held is None and not lane.revoked:
            self._hold(tp, lane, why)

    def _hold(self, tp: TopicPartition, lane: Lane, why: str) -> None:
        lane.held, lane.held_at = why, lane.position
        self._consumer.pause(tp)
        self._notice("partition_held", partition=str(lane), why=why, alert="operator must decide")

    def _rewind(self, error: Exception) -> None:
        """Records drained before the error are gone from the client although its position moved: go back to ours."""
        self._notice(
            "fetch_failed", error=f"{type(error).__name__}: {error}", next="reading again from the last record"
        )
        for tp, lane in self._lanes.items():
            if not lane.revoked and tp in self._consumer.assignment():
                self._consumer.seek(tp, lane.position)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """The client's callbacks. Nothing may escape: a CancelledError would kill the coordinator."""

    def __init__(self, consumer: Consumer) -> None:
        self._owner = consumer

    async def on_partitions_revoked(self, revoked: Any) -> None:
        try:
            await self._owner.revoked()
        except BaseException as error:
            self._owner._notice("revoke_failed", error=f"{type(error).__name__}: {error}")

    async def on_partitions_assigned(self, assigned: Any) -> None:
        # No await here: no heartbeat is sent while this runs, and records are delivered meanwhile.
        try:
            self._owner.assigned(list(assigned))
        except BaseException as error:
            self._owner._notice("assign_failed", error=f"{type(error).__name__}: {error}")


def _ms(value: Any) -> int:
    return int(value.total_seconds() * 1000)
