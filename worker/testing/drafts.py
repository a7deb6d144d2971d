"""Drafts: what a test says about a record, made into one."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from worker.rules.record import Record

HeaderValue = str | bytes | None
Headers = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]


def draft(
    topic: str, payload: Any, *, headers: Headers, kafka_key: str | bytes | None, partition: int, timestamp: int
) -> Record:
    """A record without an offset yet. Payloads: bytes and text as they are, models and anything else as JSON."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return Record(
        topic=topic,
        partition=partition,
        offset=-1,
        timestamp=timestamp,
        key=_bytes(kafka_key),
        value=_value(payload),
        headers=tuple((name, _bytes(value)) for name, value in pairs),
    )


def _value(payload: Any) -> bytes | None:
    match payload:
        case None | str() | bytes():
            return _bytes(payload)
        case BaseModel():
            return payload.model_dump_json().encode()
    return json.dumps(payload).encode()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
