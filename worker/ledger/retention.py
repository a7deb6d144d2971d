"""Retention: what no entry needs is kept for a while, and then deleted in small batches."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from worker.ledger.connect import Lines

_MOST = 1000
_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Kept:
    """How many seconds things are kept."""

    history: float
    sessions: float
    audit: float


class Retention:
    """Deletes what is older than it is kept. Harmless if two processes do it at once."""

    def __init__(self, lines: Lines, queries: Mapping[str, str]) -> None:
        self._lines = lines
        self._queries = queries

    async def forget(self, kept: Kept) -> dict[str, int]:
        """Delete what is too old; how many rows of what."""
        counts: Counter[str] = Counter()
        counts["history"] += await self._all("forget_expired_history")
        counts["history"] += await self._all("forget_history", kept.history)
        counts["sessions"] += await self._all("forget_sessions", kept.sessions)
        counts["audit"] += await self._all("forget_audit", kept.audit)
        async with self._lines.take() as line:
            feeds = await line.fetch(self._queries["standing_feeds"], None)
        for feed in feeds:
            place = feed["consumer_group"], feed["topic"], feed["partition"], feed["log_time"]
            # In this order: thinning could drop the very sample that shrinking has left.
            for name in ("thin_samples", "shrink_samples"):
                async with self._lines.take() as line:
                    counts["samples"] += len(await line.fetch(self._queries[name], *place))
        return dict(+counts)

    async def _all(self, name: str, *arguments: float) -> int:
        total = 0
        while True:
            async with self._lines.take() as line:
                gone = len(await line.fetch(self._queries[name], _MOST, *arguments))
            total += gone
            if gone < _MOST:
                return total
            await asyncio.sleep(_PAUSE)
