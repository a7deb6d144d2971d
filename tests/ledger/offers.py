"""Offers, results and records, made short."""

from dataclasses import dataclass, field
from hashlib import blake2b

from worker.rules.claims import Kind, Status
from worker.rules.entries import Origin, Plan
from worker.rules.record import Record
from worker.rules.results import ContentType, Result
from worker.rules.writes import Done, Doubted, Failed, Released

TTL = 3600.0


def plan(kind: Kind = Kind.EXTERNAL, *, operation: int = 1, ttl: float = TTL, cap: int = 5) -> Plan:
    return Plan(operation=operation, kind=kind, ttl=ttl, attempts_cap=cap)


@dataclass(slots=True)
class Offer:
    """A message whose key can be claimed."""

    key: str
    plan: Plan = field(default_factory=plan)
    fingerprint: bytes | None = b"f"
    topic_number: int | None = 1
    partition: int = 0
    offset: int = 0
    stored_tenant: bytes | None = None
    format: int = 1
    id: bytes = b""
    stored_key: bytes | None = None
    origin: Origin = field(init=False)

    def __post_init__(self) -> None:
        self.origin = Origin(self.plan, self.topic_number, self.partition, self.format)
        self.id = id_of(self.key)
        self.stored_key = self.key.encode()


def id_of(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=16).digest()


def offers(*keys: str, kind: Kind = Kind.EXTERNAL, **more: float) -> list[Offer]:
    return [Offer(key, plan(kind, **more)) for key in keys]  # type: ignore[arg-type]


def ok(body: bytes = b"done") -> Result:
    return Result(Status.OK, ContentType.BYTES, body)


def done(key: str, fence: int, body: bytes = b"done", ttl: float = TTL) -> Done:
    return Done(id_of(key), fence, ok(body), ttl)


def failed(key: str, fence: int, *, delay: float = 0.0, error: str = "boom") -> Failed:
    return Failed(id_of(key), fence, delay, error)


def doubted(key: str, fence: int, error: str = "boom") -> Doubted:
    return Doubted(id_of(key), fence, error)


def released(key: str, fence: int) -> Released:
    return Released(id_of(key), fence)


def record(offset: int = 0, *, topic: str = "t", value: bytes | None = b"v") -> Record:
    return Record(topic=topic, partition=0, offset=offset, value=value, headers=(("h", b"\x00"), ("n", None)))
