"""What a stack is made of, as others see it: services with an address, and the request they came from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

How = Literal["environment", "docker", "local", "memory"]
VARIABLES: Mapping[str, str] = {
    "kafka": "KAFKA_BOOTSTRAP_SERVERS",
    "postgres": "DATABASE_URL",
    "redis": "REDIS_URL",
}
_ALIASES: Mapping[str, tuple[str, ...]] = {"kafka": ("KAFKA_BROKERS",)}


def named(name: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable that names this service and the address in it."""
    for variable in (VARIABLES[name], *_ALIASES.get(name, ())):
        if address := environment.get(variable):
            return variable, address
    return None


@dataclass(frozen=True)
class Service:
    """One service that answers, where it came from, and why it was chosen."""

    name: str
    url: str
    how: How
    why: str


@dataclass(frozen=True)
class KafkaOptions:
    """What a broker of ours offers beyond one plain listener."""

    # Extra listeners by name: SSL, SASL_PLAINTEXT or SASL_SSL. The plain one stays, for set-up and tests.
    listeners: Mapping[str, str] = field(default_factory=dict)
    mechanisms: tuple[str, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
    # User to password, valid for every mechanism above.
    users: Mapping[str, str] = field(default_factory=dict)
    # PEM files: key, certificate and CA in one; and the CA that client certificates are checked against.
    keystore: Path | None = None
    truststore: Path | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    heap_mb: int = 512
    # Refuse the in-memory broker: it keeps nothing and has no transactions.
    real: bool = False

    @property
    def own_broker(self) -> bool:
        """Only a broker that we configure ourselves can offer this."""
        return bool(self.listeners or self.properties or self.users)


@dataclass(frozen=True)
class Request:
    """What one start was asked for, and where it may write."""

    say: Callable[[str], None]
    environment: Mapping[str, str]
    # `scratch` ends with the stack; `data` is kept, or is scratch too.
    scratch: Path
    data: Path
    kept: bool
    durable: bool
    kafka: KafkaOptions
    ports: Mapping[str, int]
    # Of a local Postgres of ours, over those it is given anyway.
    postgres_settings: Mapping[str, str] = field(default_factory=dict)
