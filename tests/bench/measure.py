"""What one run took."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Measure:
    """Microseconds of CPU are per message; a server that is no process of ours, or took no part, is missing."""

    workload: str  # its letter
    case: str  # what varies inside the workload
    contender: str
    round: int
    messages: int
    seconds: float
    worker_us: float
    server_us: Mapping[str, float]
    rss_mb: float
    load: float
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    def told(self) -> str:
        """One line while the benchmark runs."""
        servers = "  ".join(f"{name} {micros:.1f} us" for name, micros in self.server_us.items())
        where = f"{self.workload} {self.case}".strip()
        return (
            f"round {self.round + 1}  {where:18} {self.contender:16} {self.rate:8,.0f} msg/s"
            f"  worker {self.worker_us:.1f} us  {servers}  load {self.load:.1f}"
        )
