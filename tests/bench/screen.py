"""Progress on standard error: a line per run, and on a terminal a bar."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Screen:
    """Says what runs now and what the last run gave."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, disable=not sys.stderr.isatty(), transient=True)
        self._task = self._bar.add_task("starting", total=None)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def plan(self, steps: int) -> None:
        self._bar.update(self._task, total=steps)

    def now(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def done(self) -> None:
        self._bar.advance(self._task)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
