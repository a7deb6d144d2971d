"""What a handler is handed: its context, its effect block, its transaction; and the verdicts of reconcilers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self

from worker.errors import NotExecuted, RegistrationError
from worker.rules.claims import Blocks
from worker.rules.doubts import Ruling
from worker.rules.durations import duration
from worker.rules.record import Record


@dataclass(frozen=True, slots=True)
class Source:
    """Where a record stands in Kafka."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


# What executed the entry, or that nothing did: `settle` takes exactly one of the two.
_NOT_GIVEN: Any = object()


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a handler says about an entry of another operation."""

    scope: str
    operation: str
    key: str | bytes
    tenant: str | bytes | None
    executed: Any
    not_executed: bool
    fence: int | None
    since: float  # on the worker's clock: what the handler knows, it knows since then at the earliest

    @property
    def says_executed(self) -> bool:
        return self.executed is not _NOT_GIVEN


Settle = Callable[[Settlement], Awaitable[Ruling]]


class Context:
    """What a handler or reconciler may know about its message; made only for those that ask for it."""

    __slots__ = (
        "_effect_key",
        "_log",
        "_record",
        "_settle",
        "_since",
        "attempt",
        "fence",
        "key",
        "operation",
        "out_of_order",
        "resources",
        "scope",
        "tenant",
    )

    def __init__(self, **known: Any) -> None:
        self.key: str = known["key"]
        self.scope: str = known["scope"]
        self.operation: str = known["operation"]
        self.tenant: str | None = known["tenant"]
        self.attempt: int = known["attempt"]
        self.fence: int = known["fence"]
        self.out_of_order: bool = known["out_of_order"]
        self._record: Record | None = known["record"]
        self.resources: Any = known["resources"]
        self._effect_key: Callable[[str], str] = known["effect_key"]
        self._log: Callable[[], Any] = known["log"]
        self._settle: Settle = known["settle"]
        self._since: float = known["since"]

    def effect_key(self, name: str = "") -> str:
        """The token for other systems: the same for every attempt and for the reconciler, at most 64 characters."""
        return self._effect_key(name)

    async def settle(
        self,
        *,
        scope: str,
        operation: str,
        key: str | bytes,
        tenant: str | bytes | None = None,
        executed: Any = _NOT_GIVEN,
        not_executed: bool = False,
        fence: int | None = None,
    ) -> Ruling:
        """Say what became of an entry of another operation, as its provider's own event does; what that did.

        `executed=result` is believed at once, `not_executed=True, fence=N` only after the quiet time. Committed when
        this returns, whatever becomes of the handler that calls it. The answer, equal to its name: `settled`; `kept`
        (in progress: looked at should the entry ever be in doubt); `absent` (no such entry, nothing changed); `early`
        (before the quiet time); `completed` (it has its result); `refused` (another claim, or not in doubt).
        """
        said = Settlement(scope, operation, key, tenant, executed, not_executed, fence, self._since)
        return await self._settle(said)

    @property
    def record(self) -> Record:
        """The record.

        A reconciler may be asked when its bytes cannot be had any more: then this, and what is read from it (headers,
        source, trace), raises LookupError. Key, tenant, fence and `effect_key` are always there.
        """
        if self._record is None:
            raise LookupError(
                "the record is neither parked nor in its topic any more: only its key and tokens are known"
            )
        return self._record

    @property
    def headers(self) -> Mapping[str, bytes | None]:
        """The record's headers; of a repeated name the last one."""
        return MappingProxyType(dict(self.record.headers))

    @property
    def source(self) -> Source:
        return Source(self.record.topic, self.record.partition, self.record.offset)

    @property
    def trace(self) -> Mapping[str, str]:
        """The W3C trace context the record carries, ready to be passed on."""
        return {
            name.lower(): value.decode("ascii", "replace")
            for name, value in self.record.headers
            if value is not None and name.lower() in ("traceparent", "tracestate")
        }

    @property
    def log(self) -> Any:
        """A logger that already names the message."""
        return self._log()


class Effect:
    """The block in which a handler calls someone else's system; from its start on, an error leaves the entry in doubt.

    Entering is refused with `NotExecuted` when the worker's lease is no longer safe: another worker may soon decide
    about this entry, so nothing may begin.
    """

    __slots__ = ("_blocks", "_may_start", "_proofs", "refused")

    def __init__(self, blocks: Blocks, proofs: tuple[type[BaseException], ...], may_start: Callable[[], bool]) -> None:
        self._blocks = blocks
        self._proofs = proofs
        self._may_start = may_start
        self.refused = False

    async def __aenter__(self) -> Self:
        if not self._may_start():
            self.refused = True
            raise NotExecuted("the worker's lease is not safe: nothing may begin")
        self._blocks.entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, self._proofs):
            self._blocks.proven += 1


class Transaction(Protocol):
    """The Postgres transaction that commits together with the completion; all queries of a transactional handler."""

    async def execute(self, query: str, *arguments: Any) -> str: ...
    async def executemany(self, query: str, arguments: Sequence[Sequence[Any]]) -> None: ...
    async def fetch(self, query: str, *arguments: Any) -> list[Any]: ...
    async def fetchrow(self, query: str, *arguments: Any) -> Any: ...
    async def fetchval(self, query: str, *arguments: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reconciler found out about an entry in doubt."""

    word: str
    result: Any = None

    @classmethod
    def executed(cls, result: Any = None) -> "Verdict":
        """The effect happened, with this result; believed at once."""
        return cls("executed", result)

    @classmethod
    def not_executed(cls) -> "Verdict":
        """The effect did not happen and cannot happen any more; believed after the quiet time."""
        return cls("not_executed")

    @classmethod
    def unknown(cls) -> "Verdict":
        """Nobody can say yet: ask again later."""
        return cls("unknown")


@dataclass(frozen=True, slots=True)
class Reconcile:
    """How often a reconciler is asked, how many times, and for how long; whatever is over first ends it."""

    first: timedelta | str | float = timedelta(seconds=10)
    most: timedelta | str | float = timedelta(minutes=10)
    until: timedelta | str | float = timedelta(hours=24)
    per_second: float = field(default=10.0)
    probes: int = 200

    def __post_init__(self) -> None:
        for name in ("first", "most", "until"):
            object.__setattr__(self, name, duration(getattr(self, name)))
        if self.per_second <= 0:
            raise RegistrationError(
                f"reconcile: per_second is {self.per_second}, so nobody would ever be asked",
                advice="leave the reconciler out if nobody can be asked",
            )
        if self.probes < 1:
            raise RegistrationError(
                f"reconcile: probes is {self.probes}, so nobody would ever be asked",
                advice="leave the reconciler out if nobody can be asked",
            )
