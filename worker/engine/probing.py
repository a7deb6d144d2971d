"""Probing: asking a reconciler, whatever it does. It is the user's code: it may raise anything, or never return."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from worker.engine.calling import describe
from worker.engine.tasks import Tasks
from worker.rules.context import Context, Verdict

Reconciler = Callable[[Context], Awaitable[Verdict]]
# How long after it was told to stop a reconciler is waited for.
_PATIENCE = 5.0
_WORDS = frozenset({"executed", "not_executed", "unknown"})


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of asking: a verdict, or what went wrong instead, which counts as still unknown."""

    verdict: Verdict
    error: str | None = None

    @property
    def said(self) -> str:
        """As the history tells it."""
        return self.verdict.word if self.error is None else f"{self.verdict.word}: {self.error}"


class Prober:
    """Asks reconcilers. One that ignores its timeout is left alone, counted, until it ends by itself."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.stuck: set[asyncio.Task[Probe]] = set()

    async def ask(self, reconciler: Reconciler, context: Context, timeout: float) -> Probe:
        """Ask, for at most so many seconds and a little patience. Raises nothing but a cancel of the caller."""
        asking = self._tasks.spawn(_ask(reconciler, context), "reconciler")
        try:
            await asyncio.wait([asking], timeout=timeout)
            if asking.done():
                return _result(asking)
        finally:
            asking.cancel()
        await asyncio.wait([asking], timeout=_PATIENCE)
        if not asking.done():
            self.stuck.add(asking)
            asking.add_done_callback(self.stuck.discard)
        return Probe(Verdict.unknown(), "it timed out")


def _result(asking: "asyncio.Task[Probe]") -> Probe:
    if asking.cancelled():
        return Probe(Verdict.unknown(), "CancelledError")
    return asking.result()


async def _ask(reconciler: Reconciler, context: Context) -> Probe:
    try:
        verdict = await reconciler(context)
    except BaseException as error:
        # Also SystemExit and the like: nothing a reconciler raises may end the worker.
        return Probe(Verdict.unknown(), describe(error))
    if not isinstance(verdict, Verdict) or verdict.word not in _WORDS:
        return Probe(Verdict.unknown(), f"it returned {type(verdict).__name__}, not a Verdict")
    return Probe(verdict)
