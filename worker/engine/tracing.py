"""Calling handlers inside spans; used only where a tracer is set, so that nobody else pays for it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from worker.engine.calling import Caller, Committed, Ended, Unfinished
from worker.engine.items import Item
from worker.rules.claims import Status
from worker.rules.record import Record
from worker.rules.results import Result


class Span(Protocol):
    """An execution as a tracer sees it."""

    headers: Sequence[tuple[str, bytes]]

    def ended(self, outcome: str, error: str | None = None) -> None: ...


class Spans(Protocol):
    """Where spans come from."""

    def process(
        self, record: Record, about: Mapping[str, str | int], *, private: bool
    ) -> AbstractContextManager[Span]: ...


class TracedCaller(Caller):
    """Calls each handler inside a span of its own, whose context results and dead letters carry on."""

    def __init__(self, *ports: Any, spans: Spans, **settings: Any) -> None:
        super().__init__(*ports, **settings)
        self._spans = spans

    async def call(self, item: Item) -> Ended:
        route = item.route
        about: dict[str, str | int] = {
            "oncebox.operation": route.name,
            "oncebox.attempt": item.attempts + item.crashes + 1,
        }
        if not route.private:
            about["oncebox.key"] = item.key.decode(errors="replace")
        with self._spans.process(item.record, about, private=route.private) as span:
            item.trace = span.headers
            ended = await super().call(item)
            span.ended(*_told(ended))
        return ended


def _told(ended: Ended) -> tuple[str, str | None]:
    match ended:
        case Result() as result:
            return ("rejected" if result.status is Status.REJECTED else "executed"), None
        case Committed():
            return "executed", None
        case Unfinished():
            return ended.state.name.lower(), ended.error.partition(":")[0]
        case _:
            return "superseded", None
