"""The filter: answers duplicates of completed entries without a round trip to Postgres.

A hit is proven by the ledger's own key and ends before the entry does; a miss proves nothing. Refuses to know
anything about entries that are not completed.
"""

from collections.abc import Callable, Iterable, Mapping

from worker.filter.breaker import Breaker, Notice
from worker.filter.sealed import Sealer
from worker.filter.wire import Watch, Wire, packed
from worker.filter.writer import Writer
from worker.rules.entries import Row


class Filter:
    """What one process asks of Redis and tells it. Without Redis every answer is "not here", soon."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        ledger_id: bytes,
        key: bytes,
        now: Callable[[], float],
        alive: Callable[[], bool],
        notice: Notice,
        watch: Watch | None = None,
    ) -> None:
        self._now = now
        self._alive = alive
        self._closed = False
        self._prefix = b"oncebox:" + ledger_id
        self._sealer = Sealer(ledger_id, key)
        self._wire = Wire(url, timeout=timeout, watch=watch)
        self.asked = self.answered = 0
        self._reads = Breaker("reads", notice)
        self._writer = Writer(self._wire, self._sealer, self._prefix, now=now, timeout=timeout, notice=notice)

    @property
    def open(self) -> bool:
        """Whether asking could help now: the lease is safe, and Redis answered lately or is due for a try."""
        return not self._closed and self._reads.ready and self._alive()

    async def look_up(self, wanted: Mapping[bytes, bytes | None]) -> dict[bytes, Row]:
        """Completed rows for these ids with exactly these fingerprints; whatever is missing must be asked of Postgres.

        Takes at most one timeout and raises nothing but cancellation.
        """
        if not wanted or not self.open:
            return {}
        prefix = self._prefix
        request = packed([(b"MGET", *[prefix + id_ for id_ in wanted])])
        answer = await self._wire.ask(request, 1, self._reads)
        # The lease may have lapsed while Redis answered: from then on only Postgres speaks.
        if answer is None or not self._alive():
            return {}
        (values,) = answer
        if type(values) is not list or len(values) != len(wanted):
            return {}
        now_ms = self._now() * 1000
        opened = self._sealer.open
        found = {}
        self.asked += len(wanted)
        for (id_, fingerprint), value in zip(wanted.items(), values, strict=True):
            if type(value) is bytes:
                row = opened(value, id_, fingerprint, now_ms)
                if row is not None:
                    found[id_] = row
        self.answered += len(found)
        return found

    def remember(self, rows: Iterable[Row]) -> None:
        """Keep completed rows that Postgres gave for duplicates; returns at once, and promises nothing."""
        self._writer.add(rows)

    async def close(self) -> None:
        """Write what waits if Redis takes it within one timeout, then close every connection."""
        self._closed = True
        try:
            await self._writer.close()
        finally:
            await self._wire.close()
