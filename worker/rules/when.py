"""Routing: `when=` conditions that send each record of a shared topic to exactly one handler.

`when={"header:type": "charge", "data.kind": {"paid", "refunded"}, "live": True}`: every condition must hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.errors import RegistrationError
from worker.rules.document import Document
from worker.rules.paths import Path
from worker.rules.reasons import Refused
from worker.rules.record import Record

_HEADER = "header:"
Wanted = frozenset[tuple[bool, Any]]


@dataclass(frozen=True, slots=True)
class When:
    """Conditions on headers or fields; all must hold."""

    headers: tuple[tuple[str, frozenset[str]], ...]
    fields: tuple[tuple[Path, Wanted], ...]

    def holds(self, record: Record, document: Document) -> bool:
        """Whether the record is for this handler; only conditions on fields read the payload."""
        for name, wanted in self.headers:
            given = {v.decode(errors="replace") for n, v in record.headers if v is not None and n.lower() == name}
            if len(given) != 1 or not given <= wanted:
                return False
        return all(_found(path, document) in wanted for path, wanted in self.fields)


def when(value: Mapping[str, Any] | None) -> When | None:
    """Read a handler's `when=`."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise RegistrationError(
            f"when={value!r} is not a mapping of conditions",
            advice='write when={"header:type": "charge"} or when={"event.kind": {"paid", "refunded"}}',
        )
    headers, fields = [], []
    for name, wanted in value.items():
        values = wanted if isinstance(wanted, set | frozenset | list | tuple) else (wanted,)
        if not values or not all(isinstance(v, str | int | bool) for v in values):
            raise RegistrationError(
                f"when: {name!r} is compared with {wanted!r}", advice="use strings, numbers, booleans"
            )
        if name.startswith(_HEADER):
            headers.append((name.removeprefix(_HEADER).lower(), frozenset(str(v) for v in values)))
        else:
            fields.append((Path.of(name), frozenset(map(_typed, values))))
    return When(tuple(headers), tuple(fields))


def _typed(value: Any) -> tuple[bool, Any]:
    """Python takes True for 1; JSON does not."""
    return isinstance(value, bool), value


def _found(path: Path, document: Document) -> tuple[bool, Any]:
    payload = document.json
    try:
        value = path.find(payload)
    except Refused:
        return False, None
    return _typed(value) if isinstance(value, str | int | float) else (False, None)
