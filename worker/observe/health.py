"""Health: is the worker alive, may it be counted on. Each check says why not."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """What one check says: nothing, or why it fails."""

    why: str | None = None

    @property
    def ok(self) -> bool:
        return self.why is None


Ask = Callable[[], str | None]


class Health:
    """Named checks, asked when someone wants to know. None of them waits; a check answers None, or why it fails."""

    def __init__(self) -> None:
        self.live: dict[str, Ask] = {}
        self.ready: dict[str, Ask] = {}
        self.about: Callable[[], Mapping[str, Any]] = dict

    def ask(self, checks: Mapping[str, Ask]) -> dict[str, Check]:
        return {name: Check(check()) for name, check in checks.items()}


class Probe:
    """Asks something outside again and again, each time within a deadline, and keeps the last answer."""

    def __init__(
        self,
        name: str,
        ask: Callable[[], Awaitable[object]],
        *,
        every: float,
        within: float,
        heard: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`heard` is when anyone last had an answer, by `time.monotonic`: a probe that had to queue is no bad news."""
        self.name = name
        self._ask = ask
        self._every = every
        self._within = within
        self._heard = heard
        self._why: str | None = f"{name} was not asked yet"
        self._since: float | None = None

    def check(self) -> str | None:
        """None when the last answer was good."""
        if self._why is None or self._since is None:
            return self._why
        return f"{self._why} (for {time.monotonic() - self._since:.0f} s)"

    async def once(self) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._within):
                await self._ask()
        except TimeoutError:
            if self._heard() > began:
                self._why = self._since = None
            else:
                self._failed(f"{self.name} did not answer within {self._within:g} s", began)
        except Exception as error:
            # Whatever it is, it is no answer; a probe that dies would keep its last one for ever.
            self._failed(str(error) or type(error).__name__, began)
        else:
            self._why = self._since = None

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await self.once()
            await asyncio.sleep(self._every)

    def _failed(self, why: str, began: float) -> None:
        self._why = why
        if self._since is None:
            self._since = began
