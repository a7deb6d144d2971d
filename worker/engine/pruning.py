"""Pruning without stalling anybody: small batches with pauses, and never past what a backlog may still need."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from worker.engine.ports import Notice
from worker.errors import OnceboxError, ServiceUnavailable
from worker.rules.horizons import Feed, FoundTopic, Hold, Horizon, horizon

ListTopics = Callable[[Collection[str]], Awaitable[Mapping[str, FoundTopic]]]
DUTY = "prune"
_PAUSE = 0.1


class Operation(Protocol):
    """An operation, and how far the wall clock lets its entries go."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def newest(self) -> datetime: ...
    @property
    def audit_ttl(self) -> float | None: ...


class Entries(Protocol):
    """What a prune does to the entries."""

    async def take(self, duty: str, operation: int, every: float, *, now: bool = False) -> bool: ...
    async def operations(self) -> Sequence[Operation]: ...
    async def expired(self, operation: int, horizon: datetime, after: datetime = ..., most: int = ...) -> Any: ...
    async def announce(self, operation: int, horizon: datetime, feeds: Sequence[Feed]) -> None: ...
    async def prune(self, ids: Sequence[Any], horizon: datetime, audit_ttl: float | None) -> int: ...


class Feeds(Protocol):
    """How far those who need the entries have come."""

    async def standing(self, operation: int | None = None) -> list[Feed]: ...


@dataclass(slots=True)
class Pruned:
    """What became of one operation's expired entries."""

    operation: str
    horizon: datetime | None
    entries: int = 0
    kept_for_now: int = 0  # expired, but locked or needed at this moment
    holds: tuple[Hold, ...] = ()


class Pruner:
    """Prunes operations, all of the ledger. Harmless if two processes do it at once."""

    def __init__(
        self, entries: Entries, feeds: Feeds, topics: ListTopics, notice: Notice, *, every: float, pause: float = _PAUSE
    ) -> None:
        self._entries = entries
        self._feeds = feeds
        self._topics = topics
        self._notice = notice
        self._every = every
        self._pause = pause

    async def prune_due(self, *, now: bool = False) -> list[Pruned]:
        """Prune every operation whose turn it is, or all of them now."""
        done = []
        for operation in await self._entries.operations():
            if await self._entries.take(DUTY, operation.id, self._every, now=now):
                done.append(await self.prune(operation))
        return done

    async def prune(self, operation: Operation) -> Pruned:
        """Prune one operation up to its horizon; says what stands in the way of a later one."""
        feeds = await self._feeds.standing(operation.id)
        topics = await self._listed({feed.topic for feed in feeds if feed.retired_at is None})
        found = _not_listed() if topics is None else horizon(feeds, topics, operation.newest)
        pruned = Pruned(operation.name, found.time, holds=found.holds)
        if topics is not None and found.time is not None:
            await self._batches(operation, found.time, feeds, topics, pruned)
        if found.holds:
            first = min(found.holds, key=lambda hold: (hold.since is not None, hold.since))
            held = {"feed": first.feed, "since": first.since, "why": first.why, "feeds": len(found.holds)}
            self._notice("pruning_held_back", operation=operation.name, **held)
        if pruned.entries:
            self._notice("entries_pruned", operation=operation.name, entries=pruned.entries, horizon=found.time)
        return pruned

    async def _batches(
        self,
        operation: Operation,
        upto: datetime,
        feeds: Sequence[Feed],
        topics: Mapping[str, FoundTopic],
        pruned: Pruned,
    ) -> None:
        batch = await self._entries.expired(operation.id, upto)
        if batch is None:
            return
        await self._entries.announce(operation.id, upto, feeds)
        while batch is not None:
            # After the announcement, and again before each batch: someone may have gone back behind the horizon. Who
            # was not seen here read the announcement before reading a record.
            again = horizon(await self._feeds.standing(operation.id), topics, operation.newest)
            if again.time is None or again.time < upto:
                self._notice("prune_stopped", operation=operation.name, next="a feed went back behind the horizon")
                return
            gone = await self._delete(batch.ids, upto, operation)
            pruned.entries += gone
            pruned.kept_for_now += len(batch.ids) - gone
            await asyncio.sleep(self._pause)
            after = batch.last
            batch = await self._entries.expired(operation.id, upto, after)
            if batch is not None and not gone and batch.last == after:
                # As many as a batch holds expire in one moment, and none can go now: next time.
                return

    async def _delete(self, ids: Sequence[Any], upto: datetime, operation: Operation) -> int:
        try:
            return await self._entries.prune(ids, upto, operation.audit_ttl)
        except ServiceUnavailable as error:
            # Most likely a row that someone keeps locked: its batch is left for the next time.
            self._notice("prune_delayed", operation=operation.name, error=str(error), next="going on with the rest")
            return 0

    async def _listed(self, names: Collection[str]) -> Mapping[str, FoundTopic] | None:
        try:
            return await self._topics(names)
        except OnceboxError as error:
            self._notice("topics_not_listed", error=str(error), next="nothing is pruned before they are")
            return None


def _not_listed() -> Horizon:
    return Horizon(None, (Hold("all", None, "Kafka did not list the topics"),))
