"""Explains a record: which handler, which key, which entry, and what its row would answer. Changes nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from worker.app.handlers import effective_handlers, scope_secrets
from worker.engine.intake import Intake
from worker.engine.items import Item
from worker.engine.routes import Route, prepare
from worker.ledger.claims import read_row
from worker.ledger.desk import Desk, open_desk
from worker.ledger.keys import Keys
from worker.rules.document import Document
from worker.rules.entries import Answer, Row, answer
from worker.rules.fingerprint import FORMAT
from worker.rules.keys import FirstOf, KeyRule
from worker.rules.reasons import Refused
from worker.rules.record import Record
from worker.rules.registry import Registry
from worker.settings import Settings

_NEVER = 0
_DIFFERENCES = 10


@dataclass(frozen=True, slots=True)
class Explained:
    """One record as oncebox sees it; without a handler or an id where it would be refused."""

    record: Record
    routing: str
    route: Route | None
    refused: Refused | None
    key: bytes | None = None
    key_rule: str | None = None
    tenant: bytes | None = None
    tenant_rule: str | None = None
    id: bytes | None = None
    fingerprint: bytes | None = None
    row: Row | None = None
    now: str = ""

    @property
    def entry(self) -> str | None:
        return None if self.id is None else str(UUID(bytes=self.id))


async def explain(settings: Settings, registry: Registry, records: Sequence[Record]) -> list[Explained]:
    """Explain each record by the registry, and by what the ledger says now."""
    handlers = effective_handlers(settings, registry)
    secrets = scope_secrets(settings, handlers)
    async with open_desk(settings.database) as desk:
        numbers = {o.name: o.number for o in (await Keys(desk).operations()).values()}
        routes = [prepare(handler, numbers.get(handler.name, _NEVER), {}, secrets) for handler in handlers]
        return [await _explain(desk, routes, record, settings.engine.crash_cap) for record in records]


async def _explain(desk: Desk, routes: Sequence[Route], record: Record, crash_cap: int) -> Explained:
    item = Item(record, None)
    try:
        Intake(routes).read(item)
    except Refused as refused:
        return Explained(record, _routing(routes, item), item.route, refused)
    except Exception as error:
        # As in the pipeline: a validator of the user's model may raise anything.
        raised = Refused("invalid_payload", f"its validation raised {type(error).__name__}")
        return Explained(record, _routing(routes, item), item.route, raised)
    handler, document = item.route.handler, Document(record.value)
    rows = await desk.line.fetch(desk.queries["look_up"], [UUID(bytes=item.id)])
    row = read_row(rows[0]) if rows else None
    return Explained(
        record,
        _routing(routes, item),
        item.route,
        None,
        key=item.key,
        key_rule=_matched(handler.key, record, document),
        tenant=item.tenant,
        tenant_rule=None if handler.tenant is None else _matched(handler.tenant, record, document),
        id=item.id,
        fingerprint=item.fingerprint,
        row=row,
        now=_now(item, row, crash_cap),
    )


def _routing(routes: Sequence[Route], item: Item) -> str:
    of_topic = [route.name for route in routes if item.record.topic in route.handler.topics]
    if not of_topic:
        return f"no handler reads {item.record.topic}"
    found: Route | None = item.route
    if found is None:
        return f"{len(of_topic)} handlers read {item.record.topic}, and their when= does not choose one"
    return "the only handler of its topic" if len(of_topic) == 1 else f"chosen by when= from {', '.join(of_topic)}"


def _matched(rule: KeyRule, record: Record, document: Document) -> str:
    """The source that gave the key: of alternatives the first that is there."""
    if isinstance(rule, FirstOf):
        for part in rule.rules:
            if part.read(record, document) is not None:
                return f"{part.describe()}, the first there of {rule.describe()}"
        return f"the payload, as none is there of {rule.describe()}"
    return rule.describe()


def _now(item: Item, row: Row | None, crash_cap: int) -> str:
    """What would become of the record if it came now."""
    if row is None:
        return "there is no entry: it would run, unless its position was finished longer ago than its TTL"
    fingerprint = item.fingerprint
    if row.format != FORMAT:
        fingerprint = item.route.fingerprint.digest_as(row.format, Document(item.record.value))
    return _ANSWERS[answer(row, fingerprint, item.plan, crash_cap)]


_ANSWERS = {
    Answer.REPLAY: "it was done: it would be answered from the stored result",
    Answer.MISUSE: "its key was used with another payload: it would be dead-lettered as misuse",
    Answer.WAIT: "another record of its key has the claim: it would wait, and be answered from the result",
    Answer.DOUBT: "nobody knows whether it was done: it would be parked until the doubt is over",
    Answer.DUE: "an attempt executed nothing: it would run again",
    Answer.LATER: "an attempt executed nothing: it would run again when it is due",
    Answer.EXHAUSTED: "all attempts are used: it would be dead-lettered as retries_exhausted",
    Answer.CRASH_LOOP: "workers died while they ran it: it would be dead-lettered as crash_loop",
}


def compare(one: Explained, other: Explained) -> str:
    """Whether the second record would collide with the first, and why."""
    if one.id is None or other.id is None:
        return "one of them has no key, so they cannot collide"
    if one.id != other.id:
        return f"they do not collide: {_apart(one, other)}, so both run"
    if one.fingerprint == other.fingerprint:
        return "they collide, and that is right: equal keys and payloads, so the second is answered from the first"
    differing = ", ".join(differences(one.record.value, other.record.value)) or "their bytes"
    return f"they collide as misuse: equal keys, but the payloads differ ({differing}); the second is never run"


def _apart(one: Explained, other: Explained) -> str:
    if one.route is not None and other.route is not None and one.route.name != other.route.name:
        return f"{one.route.name} and {other.route.name} are different operations"
    return "their keys differ" if one.tenant == other.tenant else "their tenants differ"


def differences(one: bytes | None, other: bytes | None) -> list[str]:
    """Where two payloads differ: paths, never values; empty where one of them is no JSON."""
    try:
        found = _differing(Document(one).json, Document(other).json, "")
        return [path or "the whole payload" for path, _ in zip(found, range(_DIFFERENCES), strict=False)]
    except Refused:
        return []


def _differing(one: Any, other: Any, path: str) -> Iterator[str]:
    todo = [(one, other, path)]
    while todo:
        left, right, where = todo.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            names = sorted(left.keys() | right.keys(), reverse=True)
            todo += [(left.get(n, _ABSENT), right.get(n, _ABSENT), f"{where}.{n}".lstrip(".")) for n in names]
        elif left != right or isinstance(left, bool) is not isinstance(right, bool):
            yield where


_ABSENT = object()
