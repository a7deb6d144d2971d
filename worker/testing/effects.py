"""Effects: how often something was begun that the world can see."""

from collections.abc import Iterator
from dataclasses import dataclass

from worker.rules.handlers import Handler


@dataclass(frozen=True, slots=True)
class Entered:
    """An effect block that was entered, a handler without blocks that was called, or a transaction that committed."""

    operation: str
    key: str
    tenant: str | None
    fence: int


class Effects:
    """Counts effects by handler and key."""

    def __init__(self) -> None:
        self._entered: list[Entered] = []

    def note(self, entered: Entered) -> None:
        self._entered.append(entered)

    def __iter__(self) -> Iterator[Entered]:
        return iter(self._entered)

    def __len__(self) -> int:
        return len(self._entered)

    def count(self, handler: Handler | None = None, *, key: str | None = None, tenant: str | None = None) -> int:
        """How many there were, of this handler, key and tenant or of all."""
        return sum(
            (handler is None or e.operation == handler.name)
            and (key is None or e.key == key)
            and (tenant is None or e.tenant == tenant)
            for e in self._entered
        )
