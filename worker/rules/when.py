"""Routing: `when=` rules that send each record of a shared topic to exactly one handler.

`when=header("type") == "charge"` is not offered: comparing rules with == would hide typing mistakes. Instead
`when={"header:type": "charge", "data.kind": {"a", "b"}}`: every condition must hold.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from worker.errors import RegistrationError
from worker.rules.document import Document
from worker.rules.keys import KeyRule, field, header
from worker.rules.record import Record


@dataclass(frozen=True, slots=True)
class When:
    """Conditions on headers or fields; all must hold."""

    conditions: tuple[tuple[KeyRule, frozenset[bytes]], ...]
    text: str

    def holds(self, record: Record, document: Document) -> bool:
        return all(rule.read(record, document) in wanted for rule, wanted in self.conditions)


def when(value: Mapping[str, Any] | None) -> When | None:
    """Read a handler's `when=`."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise RegistrationError(
            f"when={value!r} is not a mapping of conditions",
            advice='write when={"header:type": "charge"} or when={"event.kind": {"paid", "refunded"}}',
        )
    conditions = []
    for name, wanted in value.items():
        rule = header(name.removeprefix("header:")) if name.startswith("header:") else field(name)
        values: Collection[Any] = wanted if isinstance(wanted, set | frozenset | list | tuple) else (wanted,)
        conditions.append((rule, frozenset(str(v).encode() for v in values)))
    return When(tuple(conditions), ", ".join(f"{name}={value[name]!r}" for name in sorted(value)))
