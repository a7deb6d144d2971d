"""What goes out: dead letters with the original record unchanged, and results with where they came from."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import orjson

from worker.engine.items import Item
from worker.rules.entries import Row
from worker.rules.outgoing import Outgoing
from worker.rules.reasons import Reason
from worker.rules.record import Record
from worker.rules.results import Result
from worker.version import VERSION

Header = tuple[str, bytes | None]
Headers = list[Header]
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


class Letters:
    """Builds dead letters and results for one consumer group."""

    def __init__(self, *, group: str, prefix: str) -> None:
        self._group = group
        self._prefix = prefix

    def dead_letter(self, item: Item, reason: Reason, detail: str, row: Row | None = None) -> Outgoing:
        """The original key, value and headers, and why it is here; the original timestamp becomes a header."""
        record = item.record
        headers: Headers = [*record.headers, *self._errors(record, item, detail)]
        # Beside the original ones, which stay unchanged.
        headers += [(f"oncebox.{name}", value) for name, value in getattr(item, "trace", ())]
        route = getattr(item, "route", None)
        if route is not None:
            headers += [
                ("oncebox.scope", route.handler.scope.name.encode()),
                ("oncebox.operation", route.handler.operation.encode()),
            ]
        if route is not None and not route.private and getattr(item, "id", None) is not None:
            headers.append(("oncebox.key", item.key))
            if item.tenant is not None:
                headers.append(("oncebox.tenant", item.tenant))
        fingerprint = getattr(item, "fingerprint", None)
        if fingerprint is not None:
            headers.append(("oncebox.fingerprint", fingerprint.hex().encode()))
        if row is not None:
            headers += _entry(row, reason)
        elif item.failed_at is not None:
            headers.append(("oncebox.first-failed-at", item.failed_at.isoformat().encode()))
        headers += [
            ("oncebox.reason", reason.encode()),
            ("oncebox.attempts", str(item.attempts).encode()),
            ("oncebox.redrives", _redrives(record)),
            ("oncebox.version", VERSION.encode()),
            ("oncebox.timestamp", str(record.timestamp).encode()),
            ("oncebox.timestamp-type", _TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestamp").encode()),
            ("oncebox.dead-lettered-at", datetime.now(UTC).isoformat().encode()),
        ]
        topic = record.topic
        if route is not None and topic not in route.handler.topics:
            # A record of a file: its name is no topic's.
            topic = route.handler.topics[0]
        return Outgoing(self.dead_letter_topic(topic), record.key, record.value, headers, record.partition)

    def dead_letter_topic(self, topic: str) -> str:
        return f"{self._prefix}{topic}"

    def result(self, topic: str, item: Item, result: Result, *, fence: int, replayed: bool) -> Outgoing:
        """The stored bytes, unchanged, with where they came from."""
        record = item.record
        headers: Headers = [
            ("oncebox.source", f"{record.topic}/{record.partition}@{record.offset}".encode()),
            *self._about(item, result, fence, replayed),
            *_carried(item),
        ]
        return Outgoing(topic, record.key, result.body, headers)

    def result_reply(self, item: Item, result: Result, *, fence: int, replayed: bool) -> Outgoing | None:
        """The reply with a stored result."""
        return self.reply(item, 200, result.body, about=self._about(item, result, fence, replayed))

    def _about(self, item: Item, result: Result, fence: int, replayed: bool) -> Headers:
        headers: Headers = [
            ("oncebox.status", result.status.name.lower().encode()),
            ("oncebox.fence", str(fence).encode()),
        ]
        if not item.route.private:
            headers.append(("oncebox.key", item.key))
        if result.code is not None:
            headers.append(("oncebox.code", result.code.encode()))
        if result.content_type.mime:
            headers.append(("content-type", result.content_type.mime.encode()))
        if replayed:
            headers.append(("Idempotent-Replayed", b"true"))
        return headers

    def reply(
        self, item: Item, status: int, body: bytes | None = None, *, about: Sequence[Header] = ()
    ) -> Outgoing | None:
        """What whoever asked by `reply_to` is told; None when nobody asked, or the scope does not allow the topic."""
        route = getattr(item, "route", None)
        if route is None or not route.handler.scope.reply_to:
            return None
        wanted = [v for n, v in item.record.headers if n.lower() == "reply_to" and v is not None]
        topic = wanted[-1].decode(errors="replace") if wanted else ""
        if topic not in route.handler.scope.reply_to:
            return None
        record = item.record
        headers: Headers = [
            ("oncebox.reply-status", str(status).encode()),
            ("oncebox.source", f"{record.topic}/{record.partition}@{record.offset}".encode()),
            *about,
            *_carried(item),
        ]
        return Outgoing(topic, record.key, body, headers)

    def refusal_reply(self, item: Item, reason: Reason, detail: str) -> Outgoing | None:
        """The reply to a record that became a dead letter."""
        body = orjson.dumps({"reason": reason, "detail": detail})
        return self.reply(item, _STATUS.get(reason, 500), body, about=[("oncebox.status", reason.encode())])

    def _errors(self, record: Record, item: Item, detail: str) -> Headers:
        return [
            ("__dlq.errors.topic", record.topic.encode()),
            ("__dlq.errors.partition", str(record.partition).encode()),
            ("__dlq.errors.offset", str(record.offset).encode()),
            ("__dlq.errors.group", self._group.encode()),
            ("__dlq.errors.delivery.count", str(item.attempts + item.crashes).encode()),
            ("__dlq.errors.message", detail.encode()[:1000]),
        ]


_STATUS = {
    "misuse": 422,
    "missing_key": 400,
    "invalid_key": 400,
    "missing_tenant": 400,
    "undecodable": 400,
    "invalid_payload": 400,
}
_SMALL = 1024  # bytes of a header that even a cut letter carries
_TRACE = frozenset({"traceparent", "tracestate"})
_CARRIED = frozenset({"correlation-id", "correlation_id", "correlationid"}) | _TRACE


def _carried(item: Item) -> Headers:
    """What a result takes over from its record; the trace goes on from our span if there is one."""
    own: Headers = [*getattr(item, "trace", ())]
    names = _CARRIED - _TRACE if own else _CARRIED
    return [*((name, value) for name, value in item.record.headers if name.lower() in names), *own]


def cut(out: Outgoing) -> Outgoing:
    """A letter without what made it too large; it says so, and never passes for the whole one.

    The effect happened, but a result that cannot be given is `unstorable` for whoever reads it, and no 200.
    """
    told = {"oncebox.status": b"unstorable", "oncebox.reply-status": b"500"}
    kept: Headers = []
    for name, value in out.headers:
        ours = name.startswith(("oncebox.", "__dlq."))
        if name != "oncebox.reason" and (ours or (name.lower() in _CARRIED and len(value or b"") <= _SMALL)):
            kept.append((name, told.get(name, value)))
    kept += [("oncebox.reason", b"too_large"), ("oncebox.cut-bytes", str(len(out.value or b"")).encode())]
    return replace(out, key=None, value=b"", headers=kept)


def _entry(row: Row, reason: Reason) -> Headers:
    headers: Headers = [
        ("oncebox.state", row.state.name.lower().encode()),
        ("oncebox.fence", str(row.fence).encode()),
    ]
    if reason == "misuse" and row.fingerprint is not None:
        headers.append(("oncebox.first-fingerprint", row.fingerprint.hex().encode()))
    if row.failed_at is not None:
        headers.append(("oncebox.first-failed-at", row.failed_at.isoformat().encode()))
    return headers


def _redrives(record: Record) -> bytes:
    given = [value for name, value in record.headers if name == "oncebox.redrives" and value is not None]
    return given[-1] if given else b"0"
