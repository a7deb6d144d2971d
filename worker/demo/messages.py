"""What is sent: webhook-like messages, each delivered one to three times, as the seed decides."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

PARTITIONS = 4

Operation = Literal["charge", "record_order", "index_document"]
TOPICS: dict[Operation, str] = {
    "charge": "payments.charges",
    "record_order": "orders",
    "index_document": "search.documents",
}


@dataclass(frozen=True, slots=True)
class Message:
    """One thing that should happen once."""

    operation: Operation
    key: str  # what oncebox knows it by
    reference: str  # what the system that is acted upon knows it by
    value: bytes
    in_header: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """One of its copies. They go to any partition, so that two workers meet over one key."""

    message: Message
    partition: int
    headers: tuple[tuple[str, bytes], ...]


def topic_of(run: str, operation: Operation) -> str:
    """The topic of this run: nothing is ever written to a topic that somebody else may use."""
    return f"{run}.{TOPICS[operation]}"


def compose(run: str, count: int, chance: random.Random) -> list[Message]:
    """So many messages, a third for each handler."""
    operations: Sequence[Operation] = list(TOPICS)
    return [_message(f"{run}-{number}", operations[number % 3], chance) for number in range(count)]


def deliver(messages: Sequence[Message], chance: random.Random) -> list[Delivery]:
    """Every copy of every message in the order of sending: some right behind each other, some long after."""
    copies = [message for message in messages for _ in range(chance.randint(1, 3))]
    chance.shuffle(copies)
    return [Delivery(message, chance.randrange(PARTITIONS), _headers(message, chance)) for message in copies]


def _message(name: str, operation: Operation, chance: random.Random) -> Message:
    in_header = operation != "record_order" and chance.random() < 0.5
    match operation:
        case "charge":
            body: dict[str, object] = {"delivery_id": name, "amount_cents": chance.randint(100, 99_999)}
            reference = f"account of {name}"
        case "record_order":
            order = {"client_reference": name, "item": "umbrella", "quantity": chance.randint(1, 9)}
            body, reference = {"order": order}, name
        case "index_document":
            reference = f"document-{name}"
            body = {"delivery_id": name, "document_id": reference, "text": "to be found"}
    key = f"{name}-in-header" if in_header else name
    return Message(operation, key, reference, json.dumps(body).encode(), in_header)


def _headers(message: Message, chance: random.Random) -> tuple[tuple[str, bytes], ...]:
    if not message.in_header:
        return ()
    # Senders differ in spelling, the key is the same.
    value = f'"{message.key}"' if chance.random() < 0.5 else message.key
    return ((chance.choice(("Idempotency-Key", "idempotency-key")), value.encode()),)
