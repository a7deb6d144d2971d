"""The member of a consumer group: reads lanes, and commits their watermarks.

Membership is not a lock: an evicted member may go on reading what it has buffered while another reads the same.
Only the claim in the ledger decides who runs.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from worker.errors import ServiceUnavailable
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.fetching import Fetched, Fetching
from worker.kafka.listing import list_topics
from worker.kafka.places import Places
from worker.kafka.security import client_options
from worker.kafka.stopping import stop_consumer
from worker.rules.lanes import Lane
from worker.settings import Settings

Notice = Callable[..., None]
_NO_LIMIT_MS = 2**31 - 1


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
            # The client has one fetch under way per broker: at partitions without news it would wait while others have
            # handed out what was buffered.
            fetch_max_wait_ms=_ms(kafka.fetch_wait),
            fetch_max_bytes=kafka.fetch_max_bytes,
            max_partition_fetch_bytes=kafka.partition_fetch_bytes,
        )
        self._fetching = Fetching(self._consumer, lambda: self._lanes, notice)
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
        return await self._fetching.fetch(wanted, most=most, wait_ms=wait_ms) if wanted else []

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
        self._fetching.forget_errors(tp)
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
        self._fetching.forget_errors()
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

    def _hold_lane(self, lane: Lane, why: str) -> None:
        tp = TopicPartition(lane.topic, lane.partition)
        if self._lanes.get(tp) is lane and lane.held is None and not lane.revoked:
            self._fetching.hold(tp, lane, why)


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
