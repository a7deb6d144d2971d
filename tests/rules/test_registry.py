"""Mistakes are refused where they are written, with advice; what fits is registered as declared."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from worker import Context, Effect, Record, Registry, Retries, Scope, Transaction, Verdict, field, header
from worker.errors import RegistrationError
from worker.rules.claims import Kind


class Message(BaseModel):
    """A payload."""

    id: str


async def plain(message: Message) -> None: ...
async def with_effect(message: Message, effect: Effect) -> None: ...
async def with_transaction(message: Message, transaction: Transaction) -> None: ...


def declare(function: Callable[..., Any] = plain, **changes: Any) -> Registry:
    registry = Registry()
    declared = {"topic": "t", "scope": "jobs", "key": "id"} | changes
    topic = declared.pop("topic")
    registry.handler(topic, **declared)(function)
    return registry


def test_what_is_declared_is_what_is_registered() -> None:
    registry = Registry()
    registry.add(Scope("invoices", ttl="14d", retries=Retries(7)))

    @registry.handler(
        ["a", "b"],
        scope="invoices",
        key=header("X") | field("id"),
        tenant="tenant",
        timeout="5s",
        retries=3,
        order="none",
    )
    async def invoice(message: Message, context: Context, effect: Effect) -> None: ...

    assert registry.topics == {"a", "b"}
    assert invoice.name == "invoices/invoice"
    assert invoice.kind is Kind.EXTERNAL
    assert invoice.timeout == timedelta(seconds=5)
    assert invoice.retries.attempts == 3
    assert invoice.injected == (Context, Effect)
    assert invoice.model is Message


@pytest.mark.parametrize(
    ("annotation", "payload", "null"),
    [(bytes, "bytes", False), (bytes | None, "bytes", True), (Record, "record", True), (dict[str, Any], "dict", False)],
)
def test_payloads_may_be_bytes_records_and_dicts(annotation: Any, payload: str, null: bool) -> None:
    async def handler(message: Any) -> None: ...

    handler.__annotations__["message"] = annotation
    (made,) = declare(handler).handlers
    assert (made.payload, made.takes_null) == (payload, null)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"scope": "nonsense"}, "no scope 'nonsense'"),
        ({"kind": "magic"}, "kind='magic'"),
        ({"order": "random"}, "order='random'"),
        ({"timeout": "20d"}, "longer than half the ttl"),
        ({"timeout": "soon"}, "soon"),
        ({"key": 7}, "key=7"),
        ({"key": "items[0].id"}, "array"),
        ({"topic": ()}, "names no topic"),
        ({"concurrency": 0}, "lets nothing run"),
        ({"retries": 0}, "attempts is 0"),
        ({"not_executed": (KeyboardInterrupt,)}, "not_executed"),
        ({"kind": "transactional"}, "takes no Transaction"),
        ({"function": with_effect, "kind": "repeatable"}, 'only kind="external"'),
        ({"function": with_transaction}, "asks for Transaction"),
    ],
)
def test_mistakes_are_refused_with_advice(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(Exception, match=word.replace("(", r"\(")) as caught:
        declare(changes.pop("function", plain), **changes)
    assert "\n" in str(caught.value) or getattr(caught.value, "advice", None) is None


def test_parameters_nobody_can_fill_are_refused() -> None:
    async def nothing() -> None: ...
    async def untyped(message) -> None: ...  # type: ignore[no-untyped-def]
    async def strange(message: Message, other: int) -> None: ...
    async def starred(message: Message, *rest: int) -> None: ...
    async def twice(message: Message, a: Context, b: Context) -> None: ...
    def blocking(message: Message, effect: Effect) -> None: ...

    for function in (nothing, untyped, strange, starred, twice, blocking):
        with pytest.raises(RegistrationError):
            declare(function)


def test_two_handlers_of_one_topic_need_rules_to_choose() -> None:
    registry = declare()

    async def other(message: Message) -> None: ...

    with pytest.raises(RegistrationError, match="no rule to choose"):
        registry.handler("t", scope="jobs", key="id")(other)
    routed = declare(when={"header:type": "a"})
    routed.handler("t", scope="jobs", key="id", when={"header:type": "b"})(other)
    assert len(routed.handlers) == 2


def test_one_operation_for_two_handlers_must_be_named_by_both() -> None:
    registry = declare(topic="a")
    with pytest.raises(RegistrationError, match="two handlers are registered as jobs/plain"):
        registry.handler("b", scope="jobs", key="id")(plain)
    named = declare(topic="a", operation="pay")
    named.handler("b", scope="jobs", key="id", operation="pay")(plain)
    assert [h.name for h in named.handlers] == ["jobs/pay", "jobs/pay"]


def test_registries_merge_and_quarrel_where_they_differ() -> None:
    first, second = Registry(), Registry()
    first.add(Scope("mine", ttl="1d"))
    second.add(Scope("mine", ttl="2d"))
    with pytest.raises(RegistrationError, match="differently"):
        first.include(second)
    third = declare(topic="x")
    first.include(third)
    assert first.topics == {"x"}


def test_only_external_handlers_have_reconcilers() -> None:
    async def look(context: Context) -> Verdict:
        return Verdict.unknown()

    (external,) = declare().handlers
    assert external.reconciler(look) is look
    (repeatable,) = declare(kind="repeatable").handlers
    with pytest.raises(RegistrationError, match="never in doubt"):
        repeatable.reconciler(look)


def test_a_scope_is_defined_before_the_handlers_that_use_it() -> None:
    registry = declare()
    with pytest.raises(RegistrationError, match="added after plain"):
        registry.add(Scope("jobs", ttl="1d"))
