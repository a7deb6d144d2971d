"""Conditions that route the records of a shared topic."""

import json
from typing import Any

import pytest

from worker.errors import RegistrationError
from worker.rules.document import Document
from worker.rules.record import Record
from worker.rules.when import when


def holds(conditions: dict[str, Any], payload: Any = None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> bool:
    record = Record("t", 0, 0, value=json.dumps(payload).encode(), headers=headers)
    rule = when(conditions)
    assert rule is not None
    return rule.holds(record, Document(record.value))


def test_a_header_condition_compares_text_in_any_letter_case_of_its_name() -> None:
    assert holds({"header:Type": "charge"}, headers=(("type", b"charge"),))
    assert not holds({"header:Type": "charge"}, headers=(("type", b"refund"),))
    assert not holds({"header:type": "charge"})
    assert not holds({"header:type": "charge"}, headers=(("type", b"charge"), ("type", b"refund")))


def test_a_field_condition_compares_values_not_their_text() -> None:
    assert holds({"live": True}, {"live": True})
    assert not holds({"live": True}, {"live": 1})
    assert not holds({"live": 1}, {"live": True})
    assert holds({"event.kind": {"paid", "refunded"}}, {"event": {"kind": "refunded"}})
    assert not holds({"event.kind": "paid"}, {"event": {"kind": ""}})


@pytest.mark.parametrize("payload", [[], {"event": []}, {"event": [{"kind": "paid"}]}, {"event": None}, "paid", 3])
def test_a_payload_of_another_shape_does_not_fit(payload: Any) -> None:
    assert not holds({"event.kind": "paid"}, payload)


@pytest.mark.parametrize("conditions", [{}, [], {"kind": []}, {"kind": {"a": 1}}, {"kind": None}])
def test_conditions_that_mean_nothing_are_refused(conditions: Any) -> None:
    with pytest.raises(RegistrationError):
        when(conditions)
