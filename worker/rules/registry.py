"""The registry: handlers and scopes of a deployment, as an ordinary object in a module.

Mistakes are refused here, where they were written, with advice; nothing is left to be found by the first record.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal

from worker.errors import NotExecuted, RegistrationError
from worker.rules.claims import Kind
from worker.rules.context import Reconcile
from worker.rules.durations import duration, format_duration
from worker.rules.handlers import Handler, Order, read_signature
from worker.rules.keys import KeyRule, field
from worker.rules.retries import Retries, retries
from worker.rules.scopes import SHIPPED, Scope
from worker.rules.when import when

KindName = Literal["external", "transactional", "repeatable"]
Lifespan = Callable[[], AsyncIterator[Any]]
_KINDS = {"external": Kind.EXTERNAL, "transactional": Kind.TRANSACTIONAL, "repeatable": Kind.REPEATABLE}


class Registry:
    """Holds handlers, scopes and the lifespan of what handlers share."""

    def __init__(self) -> None:
        self.scopes: dict[str, Scope] = {scope.name: scope for scope in SHIPPED}
        self.handlers: list[Handler] = []
        self.lifespans: list[Lifespan] = []

    @property
    def topics(self) -> set[str]:
        return {topic for handler in self.handlers for topic in handler.topics}

    def add(self, scope: Scope) -> Scope:
        """Define a scope, or redefine a shipped one, before the handlers that use it."""
        users = [h.operation for h in self.handlers if h.scope.name == scope.name]
        if users:
            raise RegistrationError(
                f"scope {scope.name!r} is added after {', '.join(users)} was registered with it",
                advice="call registry.add(Scope(...)) above the handlers",
            )
        self.scopes[scope.name] = scope
        return scope

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Register an async generator that opens what handlers share, yields it, and closes it."""
        self.lifespans.append(function)
        return function

    def handler(
        self,
        topic: str | Iterable[str],
        *,
        scope: str,
        key: KeyRule | str,
        kind: KindName = "external",
        tenant: KeyRule | str | None = None,
        when: Mapping[str, Any] | None = None,
        operation: str | None = None,
        timeout: timedelta | str | float = "30s",
        retries: Retries | int | None = None,
        order: Order = "key",
        concurrency: int | None = None,
        not_executed: tuple[type[BaseException], ...] = (),
        effect_horizon: timedelta | str | float = "2m",
        reconcile: Reconcile | None = None,
        result_topic: str | None = None,
    ) -> Callable[[Callable[..., Any]], Handler]:
        """Register a function as the handler of a topic's messages."""
        declared = locals() | {}

        def register(function: Callable[..., Any]) -> Handler:
            made = _make(self, function, declared)
            self._refuse_conflicts(made)
            self.handlers.append(made)
            return made

        return register

    def include(self, other: "Registry") -> None:
        """Take over another registry's handlers, scopes and lifespans."""
        for name, scope in other.scopes.items():
            mine = self.scopes.get(name)
            if mine is not None and mine != scope and mine not in SHIPPED and scope not in SHIPPED:
                raise RegistrationError(f"both registries define scope {name!r}, and differently")
            if mine is None or mine in SHIPPED:
                self.scopes[name] = scope
        for handler in other.handlers:
            if handler not in self.handlers:
                self._refuse_conflicts(handler)
                self.handlers.append(handler)
        self.lifespans.extend(other.lifespans)

    def _refuse_conflicts(self, new: Handler) -> None:
        for old in self.handlers:
            if old.name == new.name and not (old.named_operation and new.named_operation):
                raise RegistrationError(
                    f"two handlers are registered as {new.name}",
                    advice="their keys would meet: rename one, or give both operation=… if they are one operation",
                )
            if old.name == new.name and old.kind is not new.kind:
                raise RegistrationError(f"{new.name} is registered with two kinds")
            shared = sorted(set(old.topics) & set(new.topics))
            if shared and (old.when is None or new.when is None):
                raise RegistrationError(
                    f"topic {shared[0]!r} has two handlers, {old.operation} and {new.operation}, and no rule to choose",
                    advice='give both a when=, for example when={"header:type": "charge"}',
                )


def _make(registry: Registry, function: Callable[..., Any], declared: Mapping[str, Any]) -> Handler:
    name = declared["operation"] or getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise RegistrationError("a handler needs a name", advice="pass operation=…")
    topic = declared["topic"]
    topics = (topic,) if isinstance(topic, str) else tuple(topic)
    if not topics or not all(isinstance(t, str) and t for t in topics):
        raise RegistrationError(f"{name}: {topic!r} names no topic")
    scope = registry.scopes.get(declared["scope"])
    if scope is None:
        wanted = declared["scope"]
        raise RegistrationError(
            f"{name}: there is no scope {wanted!r}; known are {', '.join(sorted(registry.scopes))}",
            advice=f'define it above the handler: registry.add(Scope("{wanted}", ttl="7d"))',
        )
    if declared["kind"] not in _KINDS:
        raise RegistrationError(f"{name}: kind={declared['kind']!r}", advice=f"choose one of {', '.join(_KINDS)}")
    kind = _KINDS[declared["kind"]]
    timeout = duration(declared["timeout"])
    if timeout > scope.lifetime / 2:
        raise RegistrationError(
            f"{name}: a timeout of {format_duration(timeout)} is longer than half the ttl of scope {scope.name!r}"
            f" ({format_duration(scope.lifetime)})",
            advice="a key would be forgotten while its handler may still run: shorten the timeout or lengthen the ttl",
        )
    if declared["order"] not in ("key", "partition", "none"):
        raise RegistrationError(f"{name}: order={declared['order']!r}", advice="choose key, partition or none")
    if declared["concurrency"] is not None and declared["concurrency"] < 1:
        raise RegistrationError(f"{name}: concurrency={declared['concurrency']} lets nothing run")
    tenant = declared["tenant"]
    return Handler(
        function=function,
        operation=name,
        topics=topics,
        scope=scope,
        kind=kind,
        key=_rule(name, "key", declared["key"]),
        tenant=None if tenant is None else _rule(name, "tenant", tenant),
        when=when(declared["when"]),
        timeout=timeout,
        retries=retries(declared["retries"], scope.retries),
        order=declared["order"],
        concurrency=declared["concurrency"],
        not_executed=_exceptions(name, declared["not_executed"]),
        effect_horizon=duration(declared["effect_horizon"]),
        reconcile=declared["reconcile"] or Reconcile(),
        result_topic=declared["result_topic"],
        named_operation=declared["operation"] is not None,
        **read_signature(function, kind),
    )


def _rule(name: str, what: str, value: object) -> KeyRule:
    match value:
        case KeyRule():
            return value
        case str():
            return field(value)
    raise RegistrationError(
        f"{name}: {what}={value!r}",
        advice='use header("Idempotency-Key"), field("path"), preset("stripe"), a | b, a + b',
    )


def _exceptions(name: str, listed: object) -> tuple[type[BaseException], ...]:
    if not isinstance(listed, tuple) or not all(isinstance(e, type) and issubclass(e, Exception) for e in listed):
        raise RegistrationError(
            f"{name}: not_executed={listed!r}",
            advice="a tuple of exception types, for example (ConnectionRefusedError,)",
        )
    return (NotExecuted, *listed)
