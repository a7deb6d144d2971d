"""Repeating: a write that is harmless when made twice is made until Postgres answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from worker.errors import ServiceUnavailable
from worker.ledger.claims import backoff
from worker.ledger.connect import Line, Lines

T = TypeVar("T")


async def repeat(lines: Lines, call: Callable[[Line], Awaitable[T]], *, broke: Callable[[str], None]) -> T:
    """Call with a line of its own until there is an answer; `broke` is told of every try without one."""
    attempt = 0
    async with lines.take() as line:
        while True:
            try:
                return await call(line)
            except ServiceUnavailable as error:
                attempt += 1
                broke(str(error))
                await asyncio.sleep(backoff(attempt))
