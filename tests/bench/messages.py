"""What is sent: orders of about 540 bytes, each with its key in a field and in a header."""

import json
import random
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from tests.stack.client import Sent

HEADER = "Idempotency-Key"
LONGEST_WAIT = 0.005


class Order(BaseModel):
    """What a handler declares: the fields it needs of those that come."""

    id: str
    created: datetime
    cents: int
    paid: bool


class Waiting(BaseModel):
    """An order whose handler waits for something outside; its place is within its line."""

    id: str
    line: int
    place: int
    seconds: float


class Timed(BaseModel):
    """An order that says when it was sent, on the clock all processes of this machine share."""

    id: str
    sent: float


def prefix(run: str) -> str:
    """What the ids of one run begin with; eight digits follow."""
    return f"ord-{run}-"


def orders(run: str, count: int) -> Iterator[Sent]:
    """So many orders with keys that no other run uses; the Kafka key is the order's id."""
    return (order(run, number) for number in range(count))


def mixed(run: str, count: int, share: float) -> Iterator[Sent]:
    """Orders of which this share, evenly spread, are redeliveries of one of the thousand before."""
    chance = random.Random(count)
    fresh = 0
    for number in range(count):
        if int((number + 1) * share) > int(number * share):
            yield order(run, chance.randrange(max(0, fresh - 1000), fresh))
        else:
            yield order(run, fresh)
            fresh += 1


def waiting(run: str, count: int, lines: int) -> Iterator[Sent]:
    """Orders of so many Kafka keys in one partition."""
    for number, (line, place, seconds) in enumerate(waits(count, lines)):
        key = f"{prefix(run)}{number:08}"
        fields = {"line": line, "place": place, "seconds": seconds}
        yield _sent(key, number, kafka_key=f"line-{line}", partition=0, **fields)


def waits(count: int, lines: int) -> Iterator[tuple[int, int, float]]:
    """Line, place in it and wait of each message; the same for the worker and for its floor."""
    chance = random.Random(lines)
    places = [0] * lines
    for number in range(count):
        line = number % lines if number < lines else chance.randrange(lines)
        yield line, places[line], chance.uniform(0, LONGEST_WAIT)
        places[line] += 1


def order(run: str, number: int, **extra: Any) -> Sent:
    key = f"{prefix(run)}{number:08}"
    return _sent(key, number, kafka_key=key, partition=-1, **extra)


def _sent(key: str, number: int, *, kafka_key: str, partition: int, **extra: Any) -> Sent:
    headers = ((HEADER, key.encode()), ("type", b"order.placed"))
    return Sent(_value(key, number, extra), key=kafka_key.encode(), headers=headers, partition=partition)


def _value(key: str, number: int, extra: dict[str, Any]) -> bytes:
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
        **extra,
    }
    return json.dumps(order).encode()
