"""Reading keys from records made up for one test."""

from collections.abc import Sequence

import pytest

from worker.rules.document import Document
from worker.rules.keys import KeyRule, as_rule
from worker.rules.reasons import Refused
from worker.rules.record import Record

Headers = Sequence[tuple[str, bytes | None]]


def read(rule: KeyRule | str, headers: Headers = (), value: bytes | None = b"{}") -> bytes | None:
    return as_rule(rule).read(Record("t", 0, 0, headers=headers, value=value), Document(value))


def refusal(rule: KeyRule | str, headers: Headers = (), value: bytes | None = b"{}") -> Refused:
    with pytest.raises(Refused) as refused:
        read(rule, headers, value)
    return refused.value
