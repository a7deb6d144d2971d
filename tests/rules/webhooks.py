"""What a webhook story is: one event as first delivered, as delivered again, and other events."""

import json
from dataclasses import dataclass
from typing import Any

from worker.rules.document import Document
from worker.rules.record import Record

Body = dict[str, Any] | list[Any] | bytes | None


@dataclass(frozen=True)
class Delivery:
    """A webhook as a bridge writes it to Kafka."""

    headers: dict[str, str]
    body: Body = None

    @property
    def value(self) -> bytes | None:
        return self.body if isinstance(self.body, bytes | None) else json.dumps(self.body).encode()

    @property
    def record(self) -> Record:
        headers = [(name, text.encode()) for name, text in self.headers.items()]
        return Record("webhooks", 0, 0, headers=headers, value=self.value)

    @property
    def document(self) -> Document:
        return Document(self.value)


@dataclass(frozen=True)
class Story:
    """The key of the original, its retry with everything changed that a retry changes, and other events."""

    key: bytes
    original: Delivery
    retry: Delivery
    others: tuple[Delivery, ...]


def by_header(key: str, name: str, id_: str, *, first: dict[str, str], again: dict[str, str]) -> Story:
    """An event whose id is one header; the other headers change when it is delivered again."""
    body = {"type": "thing.changed", "data": {"amount": 12.5, "currency": "EUR"}}
    return Story(
        key.encode(),
        Delivery({**first, name: id_}, body),
        Delivery({**again, name: id_}, body),
        (Delivery({**first, name: f"{id_}0"}, body),),
    )


def by_body(key: str, body: dict[str, Any], other: dict[str, Any], **changes: Any) -> Story:
    """An event whose id is in the body; `changes` are the fields a retry changes."""
    return Story(
        key.encode(),
        Delivery({"X-Request-Id": "r-1", "Date": "Mon"}, body),
        Delivery({"X-Request-Id": "r-2", "Date": "Tue", "X-Retry": "1"}, {**body, **changes}),
        (Delivery({"X-Request-Id": "r-1", "Date": "Mon"}, {**body, **other}),),
    )
