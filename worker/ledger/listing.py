"""Lists of entries by state, page by page; each page reads a bounded number of rows by an index.

There is no index on state: entries in doubt are found in `doubts`, those in progress through `open_claims`, the others
among the rows of an operation in the order of their expiry.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from asyncpg.pgproto.pgproto import UUID

from worker.errors import UsageError
from worker.ledger.desk import Desk
from worker.ledger.keys import Entry, Keys
from worker.rules.claims import State

_CLAIMS = 20
_ROWS = 2_000
_MOST_ROWS = 100_000
_ZERO = UUID(bytes(16))
_LAST = UUID(b"\xff" * 16)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries to list: `operations` by number, none for all; `after` is where an earlier page ended."""

    state: State
    operations: Sequence[int] | None
    older_than: timedelta = timedelta(0)
    limit: int = 50
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Entries, and where the next page begins; None when there is nothing more."""

    entries: Sequence[Entry]
    next: str | None
    looked_at: int


class Listing:
    """Finds entries by state."""

    def __init__(self, desk: Desk) -> None:
        self._line = desk.line
        self._queries = desk.queries
        self._keys = Keys(desk)

    async def page(self, wanted: Wanted) -> Page:
        match wanted.state:
            case State.UNKNOWN:
                return await self._in_doubt(wanted)
            case State.IN_PROGRESS:
                return await self._in_progress(wanted)
        return await self._by_expiry(wanted)

    async def _in_doubt(self, wanted: Wanted) -> Page:
        since, id_ = _place(wanted.after, (_moment, UUID)) or (datetime.min.replace(tzinfo=UTC), _ZERO)
        operations = None if wanted.operations is None else list(wanted.operations)
        older = wanted.older_than.total_seconds()
        rows = await self._line.fetch(self._queries["list_doubts"], operations, older, since, id_, wanted.limit)
        entries = await self._keys.entries([row["id"].bytes for row in rows])
        more = f"{rows[-1]['since'].isoformat()},{rows[-1]['id']}" if len(rows) == wanted.limit else None
        # One that was settled between the two statements is no longer in doubt.
        return Page([e for e in entries if e.state is State.UNKNOWN], more, len(rows))

    async def _in_progress(self, wanted: Wanted) -> Page:
        (fence,) = _place(wanted.after, (int,)) or (0,)
        found: list[Entry] = []
        looked_at = 0
        while len(found) < wanted.limit:
            rows = await self._line.fetch(self._queries["list_claims"], fence, _CLAIMS)
            for row in rows:
                ids = [id_.bytes for id_ in row["ids"]]
                looked_at += len(ids)
                fence = row["fence"]
                entries = await self._keys.entries(ids)
                found += [e for e in entries if e.state is State.IN_PROGRESS and e.fence == fence and _fits(e, wanted)]
                if len(found) >= wanted.limit:
                    # A whole claim statement at a time: the next page goes on behind it.
                    return Page(found, str(fence), looked_at)
            if len(rows) < _CLAIMS:
                break
        return Page(found, None, looked_at)

    async def _by_expiry(self, wanted: Wanted) -> Page:
        numbers = sorted(wanted.operations if wanted.operations is not None else await self._keys.operations())
        start = _place(wanted.after, (int, _moment, UUID))
        number, expiry, id_ = start or (numbers[0] if numbers else 0, datetime.max.replace(tzinfo=UTC), _LAST)
        found: list[Entry] = []
        looked_at = 0
        for operation in [n for n in numbers if n >= number]:
            if operation != number:
                expiry, id_ = datetime.max.replace(tzinfo=UTC), _LAST
            while True:
                rows = await self._line.fetch(self._queries["list_by_expiry"], operation, expiry, id_, _ROWS)
                looked_at += len(rows)
                fitting = [row for row in rows if row["state"] == wanted.state]
                entries = [e for e in await self._keys.entries([r["id"].bytes for r in fitting]) if _fits(e, wanted)]
                room = wanted.limit - len(found)
                found += entries[:room]
                if len(entries) > room or (len(entries) == room and rows):
                    last = found[-1]
                    return Page(found, f"{operation},{last.expires_at.isoformat()},{last.id}", looked_at)
                if len(rows) < _ROWS:
                    break
                expiry, id_ = rows[-1]["expires_at"], rows[-1]["id"]
                if looked_at >= _MOST_ROWS:
                    return Page(found, f"{operation},{expiry.isoformat()},{id_}", looked_at)
        return Page(found, None, looked_at)


def _fits(entry: Entry, wanted: Wanted) -> bool:
    """Whether the newest claim of an entry is old enough."""
    return not wanted.older_than or entry.now - entry.claimed_at >= wanted.older_than


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _place(after: str | None, parts: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a page said about its end, read back."""
    if after is None:
        return None
    words = after.split(",")
    try:
        return tuple(part(word) for part, word in zip(parts, words, strict=True))
    except ValueError:
        raise UsageError(f"--after {after} is not what a list of this state ended with\n  copy it whole") from None
