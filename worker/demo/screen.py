"""What people see while it runs: counters in place on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from worker.demo.audit import Look
from worker.demo.workers import Worker

_SECONDS_BETWEEN_LINES = 2.0


class Screen:
    """Tells events as lines with their time, and shows the counters below them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        self._last_line = 0.0

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """One event."""
        self.console.print(Text(f"{self.seconds:6.1f} s  {text}"), soft_wrap=True)

    def show(self, sent: int, look: Look, workers: Sequence[Worker]) -> None:
        """The counters now."""
        if self._live is not None:
            self._live.update(_counters(sent, look, workers), refresh=True)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self.say(", ".join(f"{name} {value}" for name, value in _numbers(sent, look)))

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def _numbers(sent: int, look: Look) -> list[tuple[str, int]]:
    return [
        ("sent", sent),
        ("finished", look.finished),
        ("effects", look.effects),
        ("replayed", max(0, look.finished - look.effects)),
        ("in doubt", look.states.get("unknown", 0)),
        ("running", look.states.get("in_progress", 0)),
    ]


def _counters(sent: int, look: Look, workers: Sequence[Worker]) -> Table:
    table = Table.grid(padding=(0, 3))
    for _ in range(6):
        table.add_column(justify="right", min_width=8)
    numbers = _numbers(sent, look)
    table.add_row(*(Text(name, style="dim") for name, _ in numbers))
    table.add_row(*(Text(f"{value}", style="bold") for _, value in numbers))
    states = [Text(f"worker {w.number}: {w.state}", style="red" if w.killed else "green") for w in workers]
    whole = Table.grid()
    whole.add_row("")
    whole.add_row(table)
    whole.add_row(Text("   ").join(states))
    return whole
