"""Held partitions: the ledger knows why each is held, and an operator's decision is followed within seconds."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from worker.errors import ServiceUnavailable
from worker.kafka.consumer import Consumer
from worker.rules.lanes import Lane

Notice = Callable[..., None]
_EVERY = 1.0


class Feeds(Protocol):
    """Where it is written why a partition is held, and what an operator decided."""

    async def place(self, group: str, topic: str, lanes: Sequence[Lane], followed: Mapping[int, int]) -> None: ...
    async def decided(self, group: str) -> set[tuple[str, int]]: ...


class Holds:
    """Looks after the held lanes of one consumer; costs nothing while none is held."""

    def __init__(self, consumer: Consumer, group: str, feeds: Feeds, notice: Notice) -> None:
        self._consumer = consumer
        self._group = group
        self._feeds = feeds
        self._notice = notice
        self._told: set[Lane] = set()

    async def watch(self) -> None:
        """Tell, ask and follow, for ever."""
        while True:
            await asyncio.sleep(_EVERY)
            held = [lane for lane in self._consumer.lanes if lane.held is not None and not lane.revoked]
            self._told.intersection_update(held)
            if held:
                try:
                    await self._look_after(held)
                except ServiceUnavailable as error:
                    self._notice("held_lanes_delayed", error=str(error), next="asking again")

    async def _look_after(self, held: Sequence[Lane]) -> None:
        for lane in held:
            if lane not in self._told:
                await self._feeds.place(self._group, lane.topic, [lane], {})
                self._told.add(lane)
        decided = await self._feeds.decided(self._group)
        for lane in held:
            # What is in flight ends first: then nothing below the new place is unfinished.
            if (lane.topic, lane.partition) in decided and not lane.unfinished and not lane.revoked:
                self._notice("partition_goes_on", partition=str(lane), was=lane.held, next="finding its place anew")
                await self._consumer.place_again(lane)
