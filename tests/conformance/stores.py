"""One face for every store: ledgers of several workers on the same tables, time that moves, and a look inside."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.ledger.offers import id_of
from worker import Registry, Transaction
from worker.rules.claims import Kind, State
from worker.rules.entries import Plan
from worker.rules.handlers import Handler
from worker.rules.results import Result
from worker.rules.writes import Place

LEASE = 60.0
TTL = 3600.0

registry = Registry()


@registry.handler("t", scope="signups", key="id", timeout="30s", effect_horizon="2m")
async def external(message: dict[str, Any]) -> None: ...


@registry.handler("u", scope="signups", key="id", kind="transactional")
async def transactional(message: dict[str, Any], transaction: Transaction) -> None: ...


@registry.handler("v", scope="signups", key="id", kind="repeatable")
async def repeatable(message: dict[str, Any]) -> None: ...


HANDLERS: dict[Kind, Handler] = {h.kind: h for h in (external, transactional, repeatable)}
IDENTITIES = {handler.name: "by id" for handler in HANDLERS.values()}
QUIET = 30.0 + 120.0


@dataclass(frozen=True)
class Seen:
    """An entry, whoever keeps it; times as seconds from now."""

    state: State
    kind: Kind
    fence: int
    attempts: int
    crashes: int
    held: int
    fingerprint: bytes | None
    key: bytes | None
    tenant: bytes | None
    result: Result | None
    due_in: float | None
    expires_in: float
    failed: bool
    error: str | None


@dataclass(frozen=True)
class SeenDoubt:
    fence: int
    quiet_in: float
    due_in: float
    probes: int = 0
    reported: bool = False


class Store(ABC):
    """A store under test."""

    def __init__(self) -> None:
        self.operations: dict[str, int] = {}

    def plan(self, kind: Kind = Kind.EXTERNAL, *, cap: int = 5, ttl: float = TTL) -> Plan:
        return Plan(self.operations[HANDLERS[kind].name], kind, ttl, cap)

    async def worker(self, **options: Any) -> Any:
        """The open ledger of one more worker."""
        ledger = await self.open({"lease": LEASE, "crash_cap": 3, "first_probe": 10.0, **options})
        handlers = list(HANDLERS.values())
        self.operations, _ = await ledger.register(handlers, group="g", identities=IDENTITIES)
        return ledger

    async def pass_time(self, seconds: float, *alive: Any) -> None:
        """Let time pass; the sessions of ledgers that are alive are renewed on the way, the others lapse."""
        left = seconds
        while left > 0:
            step = min(left, LEASE / 3)
            await self.shift(step)
            left -= step
            for ledger in alive:
                await self.renew(ledger)

    async def die(self, ledger: Any, survivor: Any) -> None:
        """Let the ledger's lease lapse while the survivor's is renewed; then the survivor ends it."""
        await self.pass_time(2 * LEASE + 1, survivor)
        assert await survivor.settling.end_lapsed() == [ledger.session.id]

    @abstractmethod
    async def open(self, options: dict[str, Any]) -> Any: ...
    @abstractmethod
    async def close(self) -> None: ...
    @abstractmethod
    async def shift(self, seconds: float) -> None: ...
    @abstractmethod
    async def renew(self, ledger: Any) -> None: ...
    @abstractmethod
    async def find(self, id_: bytes) -> Seen | None: ...
    @abstractmethod
    async def doubts(self) -> dict[bytes, SeenDoubt]: ...
    @abstractmethod
    async def parked(self) -> dict[Place, tuple[str, float | None]]: ...
    @abstractmethod
    async def history(self) -> list[tuple[bytes, str, int | None, bytes | None]]: ...
    @abstractmethod
    async def open_claims(self) -> dict[int, int]: ...
    @abstractmethod
    async def end_session(self, ledger: Any) -> None: ...
    @abstractmethod
    def lose_answers(self, ledger: Any, statements: Sequence[str]) -> None: ...
    @abstractmethod
    async def write(self, transaction: Transaction, what: str) -> None: ...
    @abstractmethod
    async def written(self) -> list[str]: ...

    async def entry(self, key: str) -> Seen:
        seen = await self.find(id_of(key))
        assert seen is not None, f"there is no entry for {key}"
        return seen

    async def state(self, key: str) -> State | None:
        seen = await self.find(id_of(key))
        return None if seen is None else seen.state
