"""A message is the same whether its model was validated from the text or from the parsed payload."""

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from worker.rules.document import Document
from worker.rules.models import tree_validator
from worker.rules.reasons import Refused


class Line(BaseModel):
    sku: str
    quantity: Annotated[int, Field(gt=0)]


class Plain(BaseModel):
    id: str
    cents: int = 5
    weight: float | None = None
    paid: bool = False
    created: datetime | None = None
    due: date | None = None
    lines: list[Line] = []
    tags: list[str] | None = Field(default=None, alias="labels")


class Tree(BaseModel):
    name: str
    below: list["Tree"] = []


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    created: datetime


class StrictPart(BaseModel):
    created: Annotated[datetime, Field(strict=True)]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str


class Numbers(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)
    id: str


class Checked(BaseModel):
    id: str

    @field_validator("id", mode="before")
    @classmethod
    def _seen(cls, value: Any) -> Any:
        return value


class Either(BaseModel):
    at: datetime | str


class Kinds(BaseModel):
    kind: Literal["a", "b"]


class Exact(BaseModel):
    price: Decimal


class Named(BaseModel):
    id: UUID


class Anything(BaseModel):
    data: dict[str, Any]


texts = st.sampled_from(
    ["", "1", "1.0", "-0", "true", "yes", "2026-03-01", "2026-03-01T10:00:00Z", "1e3", "1772359200", "x", "\u00e9"]
)
numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, 1.0, 1e3]),
)
plain = st.one_of(texts, numbers, st.booleans(), st.none())
lines = st.fixed_dictionaries({"sku": plain}, optional={"quantity": plain, "more": plain})
anything = st.one_of(plain, st.lists(plain, max_size=2), lines, st.lists(lines, max_size=2))
payloads = st.one_of(
    anything,
    st.fixed_dictionaries(
        {"id": st.one_of(st.just("a"), plain)},
        optional=dict.fromkeys(("cents", "weight", "paid", "created", "due", "lines", "labels", "more"), anything),
    ),
)


@given(payloads)
def test_what_a_tree_is_accepted_as_its_text_is_accepted_as(payload: Any) -> None:
    text = orjson.dumps(payload)
    document = Document(text)
    validate = tree_validator(Plain)
    assert validate is not None
    try:
        from_tree = validate(document.json)
    except ValidationError:
        return
    assert repr(from_tree) == repr(Plain.model_validate_json(text))


def test_a_tree_that_names_itself_is_plain() -> None:
    validate = tree_validator(Tree)
    assert validate is not None
    assert validate({"name": "a", "below": [{"name": "b"}]}) == Tree(name="a", below=[Tree(name="b")])


@pytest.mark.parametrize(
    "model",
    [Strict, StrictPart, Open, Numbers, Checked, Either, Kinds, Exact, Named, Anything],
    ids=lambda m: m.__name__,
)
def test_a_model_that_may_see_a_difference_is_validated_from_the_text(model: type[BaseModel]) -> None:
    assert tree_validator(model) is None


@pytest.mark.parametrize("number", ["18446744073709551616", "0.10000000000000001", "1E400", "1e-400"])
def test_a_payload_with_a_number_that_orjson_rounds_is_not_plain(number: str) -> None:
    document = Document(b'{"a": %b}' % number.encode())
    assert document.json is not None
    assert not document.is_plain


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b'"\\ud800"'])
def test_what_is_no_json_is_refused_at_every_look(text: bytes) -> None:
    document = Document(text)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            _ = document.json
        assert refused.value.reason == "undecodable"
