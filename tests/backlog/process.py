"""`oncebox` in a process of its own, for stories about its death."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.command import SCRIPT
from tests.engine.site import Site
from tests.waiting import eventually

REPO = Path(__file__).parents[2]


class Command:
    """One `oncebox …` that runs now; what it prints goes to files."""

    def __init__(self, site: Site, *words: str, **environment: str) -> None:
        self.output = site.folder / f"output-{len(list(site.folder.glob('output-*')))}"
        with self.output.open("wb") as out, self.output.with_suffix(".log").open("wb") as log:
            self.popen = subprocess.Popen(
                [str(SCRIPT), *words],
                cwd=REPO,
                env={**os.environ, **site.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )

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
        return self.output.with_suffix(".log").read_text()

    async def says(self, event: str, within: float = 30) -> dict[str, Any]:
        def told() -> list[dict[str, Any]]:
            assert self.popen.poll() is None or self.told(event), f"{self.lines[-3:]}\n{self.log[-3000:]}"
            return self.told(event)

        found: list[dict[str, Any]] = await eventually(told, within, f"no {event}", every=0.05)
        return found[-1]

    async def ended(self, within: float = 60) -> int:
        await eventually(lambda: self.popen.poll() is not None, within, "still running", every=0.05)
        return self.popen.returncode

    async def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.popen.wait)

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
