"""Intake: a record becomes a message with an identity, or is refused. No I/O, no claim, no row."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from worker.engine.items import Item
from worker.engine.routes import Route
from worker.rules.document import Document
from worker.rules.keys import KeyRule
from worker.rules.reasons import Refused
from worker.rules.record import Record


class Intake:
    """Decodes, routes, validates and identifies records."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._by_topic: dict[str, list[Route]] = {}
        for route in routes:
            for topic in route.handler.topics:
                self._by_topic.setdefault(topic, []).append(route)
        self._only = {t: r[0] for t, r in self._by_topic.items() if len(r) == 1 and r[0].handler.when is None}
        self.by_operation: Mapping[int, Route] = {route.plan.operation: route for route in routes}

    def route_of(self, topic: str, operation: int | None) -> Route | None:
        """The handler of a parked record that no topic of ours delivered: the one it was parked for."""
        return None if topic in self._by_topic or operation is None else self.by_operation.get(operation)

    def read(self, item: Item) -> None:
        """Fill in the item's route, message, identity and fingerprint; raises `Refused` with the reason.

        An item that has a route already keeps it where its topic says nothing.
        """
        record = item.record
        topic, value = record.topic, record.value
        document = Document(value)
        item.route = route = self._only.get(topic) or item.route or self._route(record, document)
        if route.validate is None or value is None:
            item.message = _decode(route, record, document)
        else:
            item.message = _validated(route, value, document)
        tenant = None if route.tenant is None else _tenant(route.tenant, record, document)
        key = route.key.read(record, document)
        fingerprint = route.fingerprint.digest(document)
        if key is None:
            key = _without_key(route, document, fingerprint)
        if route.policy is not None:
            route.policy.check(key)
        item.key = key
        item.fingerprint = fingerprint
        item.id = route.identity.entry_id(tenant, key)
        item.origin = route.origins[topic, record.partition]
        if tenant is not None:
            item.tenant = tenant
        if not route.private:
            item.stored_key = key
            item.stored_tenant = tenant

    def _route(self, record: Record, document: Document) -> Route:
        routes = self._by_topic.get(record.topic, ())
        fitting = [r for r in routes if r.handler.when is None or r.handler.when.holds(record, document)]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(r.name for r in fitting) or "none"
        raise Refused("no_handler", f"exactly one handler must fit, but {names} of {len(routes)} did")


def _validated(route: Route, value: bytes, document: Document) -> object:
    assert route.validate is not None
    if route.validate_tree is not None:
        try:
            tree = document.json
            if document.is_plain:
                return route.validate_tree(tree)
        except (Refused, ValidationError):
            # The text has the last word, and says what is wrong.
            pass
    try:
        return route.validate(value)
    except ValidationError as error:
        raise _refusal(error) from None


def _decode(route: Route, record: Record, document: Document) -> object:
    handler = route.handler
    if record.value is None and not handler.takes_null:
        raise Refused("invalid_payload", "the record has no value")
    match handler.payload:
        case "record":
            return record
        case "bytes":
            return record.value
    if not isinstance(document.json, dict):
        raise Refused("invalid_payload", f"the payload is {type(document.json).__name__}, not an object")
    return document.json


def _tenant(rule: KeyRule, record: Record, document: Document) -> bytes:
    tenant = rule.read(record, document)
    if tenant is None:
        raise Refused("missing_tenant", f"{rule.describe()} found nothing")
    return tenant


def _refusal(error: ValidationError) -> Refused:
    """Which places are wrong and how, without the values: they may be secret."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    if errors and errors[0]["type"] == "json_invalid":
        return Refused("undecodable", "the value is not JSON")
    places = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['type']}" for e in errors[:5])
    return Refused("invalid_payload", places)


def _without_key(route: Route, document: Document, fingerprint: bytes | None) -> bytes:
    if route.handler.scope.missing_key == "fingerprint" and fingerprint is not None and document.value is not None:
        return b"fingerprint:" + fingerprint.hex().encode()
    raise Refused("missing_key", f"{route.handler.key.describe()} found nothing")
