"""A replay's audience that remembers what it was told."""

from collections.abc import Mapping
from typing import Any


class Telling:
    """Everything that was shown."""

    def __init__(self) -> None:
        self.total = 0
        self.job = 0
        self.seen: list[int] = []
        self.warnings: list[str] = []
        self.reasons: list[str] = []
        self.reports: list[dict[str, Any]] = []

    def begin(self, job: int, topic: str, total: int) -> None:
        self.job, self.total = job, total

    def progress(self, done: int, counts: Mapping[str, int]) -> None:
        self.seen.append(done)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def nothing(self, why: str) -> None:
        self.reasons.append(why)

    def end(self, report: Mapping[str, Any]) -> None:
        self.reports.append(dict(report))

    @property
    def report(self) -> dict[str, Any]:
        return self.reports[-1]
