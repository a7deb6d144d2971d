"""How a long job gets on: a bar on a terminal, JSON lines elsewhere."""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.settings import Settings

_SECONDS_BETWEEN_LINES = 1.0


def shower(*, as_json: bool) -> "Bar | Lines":
    """A bar for people, lines for machines."""
    return Bar() if sys.stdout.isatty() and not as_json else Lines()


def quieter(settings: "Settings", show: "Bar | Lines") -> "Settings":
    """Settings that leave the screen to the bar: only warnings are logged beside it."""
    if isinstance(show, Lines) or settings.log.level != "info":
        return settings
    return settings.model_copy(update={"log": settings.log.model_copy(update={"level": "warning"})})


class Pace:
    """How fast a job gets on in this run; what earlier runs of it did is no part of that."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first: int | None = None

    def rate(self, done: int) -> float:
        """Records a second so far."""
        if self._first is None:
            self._first = done
        return (done - self._first) / max(time.monotonic() - self._began, 0.001)


class Lines:
    """One JSON object a line on standard output; the report is the last one."""

    def __init__(self) -> None:
        self._total = 0
        self._last = time.monotonic()
        self._pace = Pace()
        self._job: int | None = None

    def begin(self, job: int, topic: str, total: int) -> None:
        self._job, self._total, self._pace = job or None, total, Pace()
        self._print(event="started", job=self._job, topic=topic, total=total)

    def progress(self, done: int, counts: Mapping[str, int]) -> None:
        now, rate = time.monotonic(), self._pace.rate(done)
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            eta = round((self._total - done) / rate, 1) if rate else None
            fields = {"done": done, "total": self._total, "rate": round(rate, 1), "eta_seconds": eta}
            self._print(event="progress", job=self._job, **fields, counts=dict(counts))

    def warn(self, text: str) -> None:
        self._print(event="warning", warning=text)

    def nothing(self, why: str) -> None:
        self._print(event="nothing", why=why)

    def end(self, report: Mapping[str, Any]) -> None:
        self._print(event="report", **report)

    @staticmethod
    def _print(**fields: Any) -> None:
        import orjson

        sys.stdout.buffer.write(orjson.dumps(fields, default=str) + b"\n")
        sys.stdout.buffer.flush()


class Bar:
    """Done of total, rate, time left, and counts by outcome."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}/s"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[counts]}"),
            console=self._console,
        )
        self._task: Any = None
        self._pace = Pace()

    def begin(self, job: int, topic: str, total: int) -> None:
        self._pace = Pace()
        name = f"job {job}, {topic}" if job else topic
        self._task = self._progress.add_task(name, total=total, rate="0", counts="")
        self._progress.start()

    def progress(self, done: int, counts: Mapping[str, int]) -> None:
        rate = self._pace.rate(done)
        text = "  ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        self._progress.update(self._task, completed=done, rate=f"{rate:.0f}", counts=text)

    def warn(self, text: str) -> None:
        self._console.print(f"warning: {text}", soft_wrap=True, markup=False)

    def nothing(self, why: str) -> None:
        self._console.print(why, soft_wrap=True, markup=False)

    def end(self, report: Mapping[str, Any]) -> None:
        self._progress.stop()
        from worker.cli.reports import print_report

        print_report(report)
