"""A look at the whole database, cheap enough for every worker every few seconds: no scan of entries, bounded counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from worker.ledger.connect import Lines

# Beyond this many rows the figure says "at least".
_MOST = 100_000
_REASONS = frozenset({"unknown", "retry", "hold", "too_large", "unwritable"})


@dataclass(slots=True)
class Surveyed:
    """What one look found; operations by name."""

    unknown: dict[str, int] = field(default_factory=dict)
    oldest_unknown: dict[str, float] = field(default_factory=dict)
    due_probes: dict[str, int] = field(default_factory=dict)
    parked: dict[tuple[str, str], int] = field(default_factory=dict)
    parked_overdue: dict[str, float] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    lapsed: int = 0
    unsettled: int = 0
    expired: dict[str, float] = field(default_factory=dict)
    behind: dict[tuple[str, str, int], float] = field(default_factory=dict)


class Survey:
    """Reads figures about all operations, sessions and feeds. Not one snapshot: each figure is true by itself."""

    def __init__(self, lines: Lines, queries: Mapping[str, str]) -> None:
        self._lines = lines
        self._queries = queries

    async def look(self) -> Surveyed:
        found = Surveyed()
        queries = self._queries
        async with self._lines.take() as line:
            names = {row[0]: row[1] for row in await line.fetch(queries["survey_operations"])}
            for row in await line.fetch(queries["survey_doubts"], _MOST):
                name = names.get(row["operation"], "none")
                found.unknown[name] = row["entries"]
                found.oldest_unknown[name] = max(0.0, row["oldest"])
                found.due_probes[name] = row["due"]
            for row in await line.fetch(queries["survey_parked"], _MOST):
                name = names.get(row["operation"], "none")
                reason = row["reason"] if row["reason"] in _REASONS else "other"
                found.parked[name, reason] = found.parked.get((name, reason), 0) + row["records"]
                found.parked_overdue[name] = max(found.parked_overdue.get(name, 0.0), row["overdue"])
            for row in await line.fetch(queries["survey_sessions"]):
                found.sessions[row["role"]] = row["alive"]
                found.lapsed += row["lapsed"]
            found.unsettled = await line.fetchval(queries["survey_claims"], _MOST)
            for number, name in names.items():
                oldest = await line.fetchval(queries["survey_oldest"], number)
                found.expired[name] = max(0.0, oldest or 0.0)
            for row in await line.fetch(queries["survey_feeds"]):
                place = (row["consumer_group"], row["topic"], row["partition"])
                found.behind[place] = max(0.0, row["behind"])
        return found
