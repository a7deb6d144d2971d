"""Waiting on conditions instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any


async def eventually(
    predicate: Callable[[], Any | Awaitable[Any]], timeout: float = 10.0, message: str = "", *, every: float = 0.02
) -> Any:
    """Return the predicate's first truthy answer; fail with `message` and the last answer after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(f"{message or 'condition'}: not within {timeout} s, last answer {answer!r}")
        await asyncio.sleep(every)


def eventually_sync(
    predicate: Callable[[], Any], timeout: float = 10.0, message: str = "", *, every: float = 0.02
) -> Any:
    """The same for tests without an event loop."""
    deadline = time.monotonic() + timeout
    while not (answer := predicate()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{message or 'condition'}: not within {timeout} s, last answer {answer!r}")
        time.sleep(every)
    return answer
