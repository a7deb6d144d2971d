"""A handler prepared for the path of a record: everything that can be computed once, computed once."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.errors import ConfigError
from worker.rules.circuit import Circuit
from worker.rules.claims import Kind, Outcome
from worker.rules.entries import Origin, Plan
from worker.rules.fingerprint import FORMAT as FINGERPRINT_FORMAT
from worker.rules.fingerprint import FingerprintRule
from worker.rules.handlers import Handler
from worker.rules.identity import FORMAT, Identity
from worker.rules.keys import KeyPolicy, KeyRule, Preset
from worker.rules.models import tree_validator


class Origins(dict[tuple[str, int], Origin]):
    """The origins of one operation by topic and partition, made when a record comes from there."""

    def __init__(self, plan: Plan, topic_numbers: Mapping[str, int]) -> None:
        self._plan = plan
        self._topic_numbers = topic_numbers

    def __missing__(self, place: tuple[str, int]) -> Origin:
        topic, partition = place
        origin = self[place] = Origin(self._plan, self._topic_numbers.get(topic), partition, FINGERPRINT_FORMAT)
        return origin


@dataclass(slots=True, eq=False)
class Route:
    """One handler with its numbers, digests and limits, and what of it runs at this moment."""

    handler: Handler
    plan: Plan
    key: KeyRule
    tenant: KeyRule | None
    identity: Identity
    fingerprint: FingerprintRule
    policy: KeyPolicy | None
    origins: Origins
    validate: Callable[[bytes], Any] | None
    validate_tree: Callable[[Any], Any] | None  # the same from the parsed payload, where that is quicker
    order: str  # what keeps it among the records of a lane: their Kafka key, their partition, or none
    timeout: float
    private: bool
    transactional: bool
    declares_effect: bool
    waits_first: bool
    silent: bool  # nobody is told its results
    limit: int | None = None  # of its handlers that run at once
    running: int = 0
    outcomes: dict[str, dict[Outcome, int]] = field(default_factory=dict)  # by topic
    durations: list[float] | None = None  # seconds of the last executions, if someone wants to know
    backlog: deque[Any] = field(default_factory=deque)
    circuit: Circuit = field(default_factory=Circuit)
    held: deque[Any] = field(default_factory=deque)
    trial: Any = None  # the one item that may run while the circuit is open
    paused: frozenset[str] = frozenset()  # topics whose records an operator holds back from this handler

    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.handler.name
        self.outcomes = {topic: {} for topic in self.handler.topics}

    @property
    def all_paused(self) -> bool:
        """Whether an operator holds back whatever this handler reads."""
        return self.paused.issuperset(self.handler.topics)


def secret_of(handler: Handler, secrets: Mapping[str, bytes]) -> bytes | None:
    """The secret of a scope with private keys; None for the others."""
    scope = handler.scope
    if not scope.private_keys:
        return None
    if scope.name not in secrets:
        variable = secret_variable(scope.name)
        raise ConfigError(
            f"scope {scope.name!r} has private keys, but no secret is set", advice=f"set {variable} or {variable}_FILE"
        )
    return secrets[scope.name]


def identity_text(handler: Handler, secrets: Mapping[str, bytes]) -> str:
    """How keys of this operation are computed, as it is stored and compared at every start."""
    secret = secret_of(handler, secrets)
    parts = [f"v{FORMAT}", f"key={handler.key.describe()}"]
    if handler.tenant is not None:
        parts.append(f"tenant={handler.tenant.describe()}")
    if handler.scope.missing_key == "fingerprint":
        parts.append("missing_key=fingerprint")
    if secret is not None:
        parts.append(f"secret={secret_digest(secret)}")
    return " ".join(parts)


def secret_variable(scope: str) -> str:
    """Where the secret of a scope is set."""
    return f"ONCEBOX_SCOPE_{scope.upper().replace('-', '_').replace('.', '_')}_SECRET"


def secret_digest(secret: bytes) -> str:
    """A digest of the secret, never the secret: a new one is a declared change."""
    return Identity(scope="secret", operation="version", secret=secret).entry_id(None, b"version").hex()[:8]


def prepare(handler: Handler, operation: int, topic_numbers: Mapping[str, int], secrets: Mapping[str, bytes]) -> Route:
    """Compute a handler's route."""
    secret = secret_of(handler, secrets)
    scope = handler.scope
    rule = handler.key.fingerprint if isinstance(handler.key, Preset) else scope.fingerprint
    if secret is not None:
        rule = FingerprintRule(mode=rule.mode, include=rule.include, exclude=rule.exclude, secret=secret)
    strict = scope.key_min_length > 1 or scope.key_pattern is not None
    model = handler.model
    transactional = handler.kind is Kind.TRANSACTIONAL
    plan = Plan(operation, handler.kind, scope.lifetime.total_seconds(), handler.retries.attempts)
    return Route(
        handler=handler,
        plan=plan,
        key=handler.key,
        tenant=handler.tenant,
        identity=Identity(scope=scope.name, operation=handler.operation, secret=secret),
        fingerprint=rule,
        policy=KeyPolicy(scope.key_min_length, scope.key_pattern) if strict else None,
        origins=Origins(plan, topic_numbers),
        validate=None if model is None else model.__pydantic_validator__.validate_json,
        validate_tree=None if model is None or rule.mode != "canonical" else tree_validator(model),
        order=handler.order,
        timeout=handler.timeout.total_seconds(),
        circuit=Circuit(handler.timeout.total_seconds()),
        private=scope.private_keys,
        transactional=transactional,
        declares_effect=handler.declares_effect,
        waits_first=transactional or not handler.is_async,
        limit=handler.concurrency,
        silent=handler.result_topic is None and not scope.reply_to,
    )
