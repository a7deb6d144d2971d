"""A tally of records by class: how many of which handler and tenant, and where the first few of each problem are."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

RUN: Final = "run"
REPLAY: Final = "replay"
WAIT: Final = "wait"
UNKNOWN: Final = "unknown"
FINE: Final = frozenset({RUN, REPLAY})
_EXAMPLES: Final = 5
_LINES: Final = 500
_OTHERS: Final = "(others)"
NOBODY: Final = "(none)"


class Tally:
    """Counts classes; bounded, however many tenants there are."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str | None], Counter[str]] = {}
        self.classes: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, class_: str, handler: str | None, tenant: str | None, place: str) -> None:
        """Count one record."""
        self.count(class_, handler, tenant, 1)
        if class_ not in FINE:
            self.note(class_, place)

    def count(self, class_: str, handler: str | None, tenant: str | None, records: int) -> None:
        """Count so many records of one kind."""
        line = (handler or NOBODY, tenant)
        if line not in self._lines and len(self._lines) >= _LINES:
            line = (line[0], _OTHERS)
        self._lines.setdefault(line, Counter())[class_] += records
        self.classes[class_] += records

    def note(self, class_: str, place: str) -> None:
        """Remember where a problem is, if it is one of the first of its class."""
        places = self.examples.setdefault(class_, [])
        if len(places) < _EXAMPLES:
            places.append(place)

    @property
    def total(self) -> int:
        return sum(self.classes.values())

    def lines(self) -> Iterator[tuple[str, str | None, Counter[str]]]:
        """Handler, tenant and counts, in order."""
        for (handler, tenant), counts in sorted(self._lines.items(), key=lambda item: (item[0][0], item[0][1] or "")):
            yield handler, tenant, counts

    def as_json(self) -> dict[str, Any]:
        lines = [{"handler": h, "tenant": t, "classes": dict(c)} for h, t, c in self.lines()]
        return {"records": self.total, "classes": dict(self.classes), "handlers": lines, "examples": self.examples}


def in_order(classes: Iterable[str]) -> list[str]:
    """Classes as they are shown: what would run, be replayed, wait, be in doubt, then the reasons for dead letters."""
    first = [RUN, REPLAY, WAIT, UNKNOWN]
    found = set(classes)
    return [name for name in first if name in found] + sorted(found - set(first))
