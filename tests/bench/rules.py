"""What the rules cost per record, in microseconds: `python tests/bench/rules.py`."""

import json
import random
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

from worker.rules.document import Document
from worker.rules.fingerprint import FingerprintRule
from worker.rules.identity import Identity, effect_key
from worker.rules.keys import field, header, preset
from worker.rules.record import Record

CHANCE = random.Random(8785)


def order(**extra: Any) -> bytes:
    """About one kilobyte of ordinary strings and integers, and what else the caller adds."""
    payload = {
        "delivery_id": "8d1f2c34-4e5a-11ef-9a0c-0305e82c3301",
        "created": 1_700_000_000,
        "customer": {"name": "Ana María", "email": "ana@example.com", "tags": ["new", "vip"], "zip": "10115"},
        "items": [{"sku": f"sku-{n}", "quantity": n, "note": "left at the door, as agreed"} for n in range(8)],
        "at": "2026-10-13T10:00:00.123456Z",
        "paid": True,
        "coupon": None,
        **extra,
    }
    spare = 1024 - len(json.dumps(payload, ensure_ascii=False).encode())
    return json.dumps({**payload, "text": "x" * max(0, spare - 12)}, ensure_ascii=False).encode()


PAYLOADS = {
    "strings and integers": order(),
    "and prices such as 12.5": order(prices=[n + 0.25 for n in range(12)]),
    "and whole floats such as 49.0": order(prices=[float(n) for n in range(12)]),
    "and doubles of 17 digits": order(ratios=[CHANCE.random() for _ in range(8)]),
    "and integers of 19 digits": order(ids=[CHANCE.randrange(2**62, 2**63) for _ in range(8)]),
    "and an integer beyond 64 bits": order(amount=2**70),
    "and a decimal beyond a double": order(amount=0.0).replace(b'"amount": 0.0', b'"amount": 0.10000000000000001'),
    "and emoji": order(words=["\N{FIRE}\ufe0f", "\N{GRINNING FACE}"]),
}


def show(name: str, call: Callable[[], object], number: int = 20_000) -> None:
    best = min(timeit.repeat(call, number=number, repeat=5)) / number
    print(f"{best * 1e6:8.2f} us  {name}")


def main() -> None:
    value = PAYLOADS["strings and integers"]
    record = Record(
        "payments",
        0,
        0,
        headers=[("traceparent", b"00-1"), ("content-type", b"json"), ("Idempotency-Key", b'"a1b2c3"')],
    )
    identity = Identity(scope="payments", operation="charge")
    private = Identity(scope="payments", operation="charge", secret=b"s" * 32)
    entry = identity.entry_id(b"tenant", b"a1b2c3")
    parsed = Document(value)
    by_header, by_field, hook = header("Idempotency-Key") | "delivery_id", field("customer.email"), preset("github")
    github = Record("hooks", 0, 0, headers=[(f"h{n}", b"x") for n in range(8)] + [("X-GitHub-Delivery", b"72d3162e")])
    show("entry_id", lambda: identity.entry_id(None, b"a1b2c3"))
    show("entry_id with tenant", lambda: identity.entry_id(b"tenant", b"a1b2c3"))
    show("entry_id, private", lambda: private.entry_id(b"tenant", b"a1b2c3"))
    show("effect_key", lambda: effect_key(entry))
    show("key from Idempotency-Key, third of 3 headers", lambda: by_header.read(record, parsed))
    show("key from a preset, ninth of 9 headers", lambda: hook.read(github, parsed))
    show("key from a field, payload already read", lambda: by_field.read(record, parsed))
    canonical, raw = FingerprintRule(), FingerprintRule(mode="raw")
    keyed, excluding = FingerprintRule(secret=b"s" * 32), FingerprintRule(exclude=("at", "customer.tags"))
    show("fingerprint, raw", lambda: raw.digest(Document(value)))
    show("fingerprint, keyed", lambda: keyed.digest(Document(value)))
    show("fingerprint, two fields excluded", lambda: excluding.digest(Document(value)))
    for name, payload in PAYLOADS.items():
        show(f"read        {len(payload)} B: {name}", partial(_read, payload))
        show(f"read+digest {len(payload)} B: {name}", partial(_digest, canonical, payload))


def _read(payload: bytes) -> object:
    return Document(payload).json


def _digest(rule: FingerprintRule, payload: bytes) -> object:
    return rule.digest(Document(payload))


if __name__ == "__main__":
    main()
