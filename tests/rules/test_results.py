"""Results are encoded once; what cannot be stored completes the entry all the same."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from worker.rules.claims import Status
from worker.rules.results import ContentType, encode, rejected


class Receipt(BaseModel):
    """A model."""

    id: str
    cents: int


@pytest.mark.parametrize(
    ("value", "content_type", "body"),
    [
        (None, ContentType.NONE, None),
        (b"\x00\xff", ContentType.BYTES, b"\x00\xff"),
        ("grüße", ContentType.TEXT, "grüße".encode()),
        ({"b": 1, "a": [None]}, ContentType.JSON, b'{"b":1,"a":[null]}'),
        (Receipt(id="r", cents=5), ContentType.JSON, b'{"id":"r","cents":5}'),
        ({"receipt": Receipt(id="r", cents=5)}, ContentType.JSON, b'{"receipt":{"id":"r","cents":5}}'),
        (
            {"exact": Decimal("0.1000000000000000055511151231257827")},
            ContentType.JSON,
            b'{"exact":0.1000000000000000055511151231257827}',
        ),
        (0, ContentType.JSON, b"0"),
        (False, ContentType.JSON, b"false"),
    ],
)
def test_values_become_bytes(value: Any, content_type: ContentType, body: bytes | None) -> None:
    result = encode(value, 1000)
    assert (result.status, result.content_type, result.body) == (Status.OK, content_type, body)


@pytest.mark.parametrize("value", [object(), {"x": object()}, "\ud800", {1: 2}, 2**80, b"x" * 1001, "x" * 1001])
def test_what_cannot_be_stored_is_said_so(value: Any) -> None:
    result = encode(value, 1000)
    assert result.status is Status.UNSTORABLE
    assert result.body


def test_a_rejection_keeps_its_code_and_text() -> None:
    result = rejected("too \ud800 much", "amount")
    assert (result.status, result.code) == (Status.REJECTED, "amount")
    assert result.body == b'{"code":"amount","message":"too ? much"}'
