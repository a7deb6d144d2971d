"""`oncebox` in processes of their own: for stories about their death, and for what they say and how they end."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.cli.command import Answer
from tests.engine.nursery import REPO, nursery
from tests.engine.site import Site
from tests.waiting import eventually, eventually_sync


class Command:
    """One `oncebox …` that runs now; what it prints goes to files."""

    def __init__(self, site: Site, *words: str | Path, cwd: Path = REPO) -> None:
        self.output = site.folder / f"output-{len(list(site.folder.glob('output-*')))}"
        self.output.touch()
        self.errors = self.output.with_suffix(".log")
        self.errors.touch()
        environment = {**os.environ, **site.environment}
        typed = [str(word) for word in words]
        self.popen = nursery().fork(typed, environment, self.errors, output=str(self.output), cwd=str(cwd))

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it printed, line by line; the last one may be half."""
        return [json.loads(line) for line in self.output.read_text().splitlines() if line.endswith("}")]

    def told(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    @property
    def report(self) -> dict[str, Any]:
        return self.told("report")[-1]

    @property
    def log(self) -> str:
        return self.errors.read_text()

    async def says(self, event: str, within: float = 30) -> dict[str, Any]:
        def told() -> list[dict[str, Any]]:
            assert self.popen.poll() is None or self.told(event), f"{self.lines[-3:]}\n{self.log[-3000:]}"
            return self.told(event)

        found: list[dict[str, Any]] = await eventually(told, within, f"no {event}", every=0.05)
        return found[-1]

    async def ended(self, within: float = 60) -> int:
        await eventually(lambda: self.popen.poll() is not None, within, f"runs on\n{self.log[-2000:]}", every=0.05)
        return int(self.popen.poll() or 0)

    async def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        eventually_sync(lambda: self.popen.poll() is not None, 10, "does not end")


class Desk:
    """A place where one types commands, with a registry called `shop`."""

    def __init__(self, site: Site, registry: str) -> None:
        self.site = site
        self.topic = ""
        self.folder = site.folder / "desk"
        self.folder.mkdir()
        (self.folder / "shop.py").write_text(registry)

    async def type(self, *words: str | Path) -> Answer:
        command = Command(self.site, *words, cwd=self.folder)
        code = await command.ended()
        return Answer(code, command.output.read_text(), command.log)
