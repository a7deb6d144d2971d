"""What is sent: orders of about 540 bytes, each with a key of its own in a field and in a header."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime

from pydantic import BaseModel

from tests.stack.client import Sent

HEADER = "Idempotency-Key"


class Order(BaseModel):
    """What a handler declares: the fields it needs of those that come."""

    id: str
    created: datetime
    cents: int
    paid: bool


def prefix(run: str) -> str:
    """What the ids of one run begin with; eight digits follow."""
    return f"ord-{run}-"


def orders(run: str, count: int) -> Iterator[Sent]:
    """So many orders with keys that no other run uses; the Kafka key is the order's id."""
    for number in range(count):
        key = f"{prefix(run)}{number:08}"
        yield Sent(_value(key, number), key=key.encode(), headers=((HEADER, key.encode()), ("type", b"order.placed")))


def average_size(sent: Iterable[Sent]) -> float:
    sizes = [len(one.value or b"") for one in sent]
    return sum(sizes) / len(sizes)


def _value(key: str, number: int) -> bytes:
    order = {
        "id": key,
        "kind": "order.placed",
        "created": f"2026-03-01T10:{number // 60 % 60:02}:{number % 60:02}Z",
        "cents": 1999 + number % 500,
        "paid": True,
        "customer": {"name": f"Customer {number % 5000}", "email": f"c{number % 5000}@example.com", "city": "Santiago"},
        "lines": [
            {"sku": f"sku-{(number + step) % 997:04}", "quantity": step + 1, "cents": 450 + step} for step in range(4)
        ],
        "note": "left at the door as agreed, the bell does not work; please ring the neighbour on the second floor",
    }
    return json.dumps(order).encode()
