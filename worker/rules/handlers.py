"""A registered handler: what it reads, how it is called, and what it promises."""

import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel

from worker.errors import RegistrationError
from worker.rules.claims import Kind
from worker.rules.context import Context, Effect, Reconcile, Transaction, Verdict
from worker.rules.keys import KeyRule
from worker.rules.record import Record
from worker.rules.retries import Retries
from worker.rules.scopes import Scope
from worker.rules.when import When

Order = Literal["key", "partition", "none"]
Payload = Literal["model", "dict", "bytes", "record"]
INJECTED = (Context, Effect, Transaction)


@dataclass(slots=True, eq=False)
class Handler:
    """One operation: the function and everything that was declared with it. Calling it calls the plain function."""

    function: Callable[..., Any]
    operation: str
    topics: tuple[str, ...]
    scope: Scope
    kind: Kind
    key: KeyRule
    tenant: KeyRule | None
    when: When | None
    timeout: timedelta
    retries: Retries
    order: Order
    concurrency: int | None
    not_executed: tuple[type[BaseException], ...]
    effect_horizon: timedelta
    reconcile: Reconcile
    result_topic: str | None
    named_operation: bool
    payload: Payload
    model: type[BaseModel] | None
    takes_null: bool
    injected: tuple[type, ...]
    is_async: bool
    look_up: Callable[[Context], Awaitable[Verdict]] | None = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    async def deliver(self, payload: Any = None, **how: Any) -> Any:
        """Deliver one message in a test; importing `worker.testing` puts its own method in this place."""
        raise RuntimeError("import worker.testing first: it gives handlers this method")

    @property
    def name(self) -> str:
        return f"{self.scope.name}/{self.operation}"

    @property
    def declares_effect(self) -> bool:
        return Effect in self.injected

    def reconciler(self, function: Callable[[Context], Awaitable[Verdict]]) -> Callable[[Context], Awaitable[Verdict]]:
        """Register the function that is asked when the outcome of this handler is in doubt."""
        if self.kind is not Kind.EXTERNAL:
            raise RegistrationError(
                f"{self.name} is {self.kind.name.lower()}: it is never in doubt, so it needs no reconciler",
                advice='only kind="external" has one',
            )
        if not inspect.iscoroutinefunction(function):
            raise RegistrationError(f"the reconciler of {self.name} must be an async function")
        self.look_up = function
        return function


def read_signature(function: Callable[..., Any], kind: Kind) -> dict[str, Any]:
    """What the annotations of a handler's parameters ask for, or advice on what is wrong with them."""
    name = getattr(function, "__name__", repr(function))
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:
        raise RegistrationError(
            f"the annotations of {name} cannot be read: {error}",
            advice="define or import the payload type before the handler, at the top of its module",
        ) from error
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise RegistrationError(
            f"{name} takes no parameter", advice="its first one is the message: def handler(message: Model)"
        )
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        raise RegistrationError(f"{name} has *args, **kwargs or keyword-only parameters, which nobody can fill")
    first, *rest = parameters
    found = _payload(name, hints.get(first.name, inspect.Parameter.empty))
    injected: list[type] = []
    for parameter in rest:
        wanted = hints.get(parameter.name)
        if wanted not in INJECTED or wanted in injected:
            raise RegistrationError(
                f"parameter {parameter.name!r} of {name} is annotated {wanted!r}",
                advice="after the message come Context, Effect (external) or Transaction (transactional), each once",
            )
        injected.append(wanted)
    if Effect in injected and kind is not Kind.EXTERNAL:
        raise RegistrationError(f'{name} asks for Effect but is {kind.name.lower()}: only kind="external" has effects')
    if Transaction in injected and kind is not Kind.TRANSACTIONAL:
        raise RegistrationError(
            f"{name} asks for Transaction but is {kind.name.lower()}", advice='register it with kind="transactional"'
        )
    if kind is Kind.TRANSACTIONAL and Transaction not in injected:
        raise RegistrationError(
            f"{name} is transactional but takes no Transaction",
            advice="what it writes elsewhere does not commit with the completion: add `transaction: Transaction`",
        )
    is_async = inspect.iscoroutinefunction(function)
    if not is_async and (kind is Kind.TRANSACTIONAL or Effect in injected):
        raise RegistrationError(f"{name} must be an async function to use a Transaction or an Effect")
    return {**found, "injected": tuple(injected), "is_async": is_async}


def _payload(name: str, annotation: Any) -> dict[str, Any]:
    arguments = typing.get_args(annotation)
    takes_null = type(None) in arguments
    if takes_null:
        rest = [a for a in arguments if a is not type(None)]
        annotation = rest[0] if len(rest) == 1 else annotation
    found: dict[str, Any] = {"model": None, "takes_null": takes_null}
    if annotation is Record:
        return {**found, "payload": "record", "takes_null": True}
    if annotation is bytes:
        return {**found, "payload": "bytes"}
    if takes_null:
        raise RegistrationError(f"{name}: only `bytes | None` or `Record` can take a record without a value")
    if annotation is dict or typing.get_origin(annotation) is dict:
        return {**found, "payload": "dict"}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {**found, "payload": "model", "model": annotation}
    raise RegistrationError(
        f"the message of {name} is annotated {annotation!r}",
        advice="annotate it with a pydantic model, dict, bytes or Record",
    )
