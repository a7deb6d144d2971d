"""Intake: a record becomes a message with an identity, or is refused. No I/O, no claim, no row."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from worker.engine.items import Item
from worker.engine.routes import Route
from worker.rules.document import Document
from worker.rules.fingerprint import FORMAT
from worker.rules.reasons import Refused
from worker.rules.record import Record

# What a record costs beyond its value: objects and headers.
_OVERHEAD = 512


def size_of(record: Record) -> int:
    """About how many bytes a record in flight keeps."""
    value, key = record.value, record.key
    return _OVERHEAD + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)


class Intake:
    """Decodes, routes, validates and identifies records."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._by_topic: dict[str, list[Route]] = {}
        for route in routes:
            for topic in route.handler.topics:
                self._by_topic.setdefault(topic, []).append(route)
        self.by_operation: Mapping[int, Route] = {route.plan.operation: route for route in routes}

    def read(self, item: Item) -> None:
        """Fill in the item's route, message, identity and fingerprint; raises `Refused` with the reason."""
        record = item.record
        item.document = document = Document(record.value)
        item.route = route = self._route(record, document)
        item.message = _decode(route, record, document)
        handler = route.handler
        tenant = None
        if handler.tenant is not None:
            tenant = handler.tenant.read(record, document)
            if tenant is None:
                raise Refused("missing_tenant", f"{handler.tenant.describe()} found nothing")
        key = handler.key.read(record, document)
        fingerprint = route.fingerprint.digest(document)
        if key is None:
            key = _without_key(route, document, fingerprint)
        if route.policy is not None:
            route.policy.check(key)
        item.key = key
        item.tenant = tenant
        item.fingerprint = fingerprint
        item.id = route.identity.entry_id(tenant, key)
        item.plan = route.plan
        item.format = FORMAT
        item.topic_number = route.topic_numbers.get(record.topic)
        if route.validate is not None:
            document.drop()
        if route.private:
            item.stored_key = item.stored_tenant = None
        else:
            item.stored_key = key
            item.stored_tenant = tenant

    def _route(self, record: Record, document: Document) -> Route:
        routes = self._by_topic.get(record.topic, ())
        if len(routes) == 1 and routes[0].handler.when is None:
            return routes[0]
        fitting = [r for r in routes if r.handler.when is None or r.handler.when.holds(record, document)]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(r.name for r in fitting) or "none"
        raise Refused("no_handler", f"exactly one handler must fit, but {names} of {len(routes)} did")


def _decode(route: Route, record: Record, document: Document) -> object:
    handler = route.handler
    value = record.value
    if value is None and not handler.takes_null:
        raise Refused("invalid_payload", "the record has no value")
    if route.validate is not None:
        assert value is not None
        try:
            return route.validate(value)
        except ValidationError as error:
            raise _refusal(error) from None
    match handler.payload:
        case "record":
            return record
        case "bytes":
            return value
    if not isinstance(document.json, dict):
        raise Refused("invalid_payload", f"the payload is {type(document.json).__name__}, not an object")
    return document.json


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
