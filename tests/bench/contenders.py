"""Who takes part, and what each leaves to its user."""

from dataclasses import dataclass
from typing import Literal

Workload = Literal["unique", "duplicates"]
WORKLOADS: dict[Workload, str] = {
    "unique": "(a) unique keys, no-op handler",
    "duplicates": "(b) every message a duplicate of a completed key",
}


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to consume the topic."""

    name: str
    what: str
    command: tuple[str, ...]  # module and its words
    slow: bool = False  # works through the short topic; its duplicates are those of the long one
    remembers: Literal["entries", "processed", "nothing"] = "nothing"
    lacks: str = ""

    @property
    def workloads(self) -> tuple[Workload, ...]:
        return ("unique",) if self.remembers == "nothing" else ("unique", "duplicates")


OURS = "oncebox"
CONTENDERS = (
    Contender(
        OURS,
        "the worker as shipped, key from a payload field",
        ("tests.bench.ours", "field"),
        remembers="entries",
        lacks="effects outside Postgres: after a kill they are in doubt until someone looks, never repeated",
    ),
    Contender(
        "oncebox-header",
        "the same, key from a header",
        ("tests.bench.ours", "header"),
        remembers="entries",
        lacks="as above",
    ),
    Contender(
        "tuned32",
        "claim INSERT and completion UPDATE per message, 32 in flight, 16 connections, prepared statements",
        ("tests.bench.tuned",),
        slow=True,
        remembers="processed",
        lacks="takeover of a dead worker's claims (its messages are skipped), fencing, payload check, order per key, "
        "retries, stored results",
    ),
    Contender(
        "raw",
        "getmany(500), JSON, commit per batch",
        ("tests.bench.raw",),
        lacks="any deduplication: every redelivery runs again",
    ),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """What one run took. Microseconds of CPU are per message; None where the server is not a process of ours."""

    contender: str
    workload: Workload
    round: int
    messages: int
    seconds: float
    worker_us: float
    postgres_us: float | None
    kafka_us: float | None
    rss_mb: float
    load: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds
