"""A process that works until it is told to stop: its logs, its event loop, its signals."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from worker.app.opening import message_fields
from worker.kafka.quiet import quieten
from worker.kafka.sockets import break_cleanly
from worker.observe.logs import configure
from worker.settings import Settings

Work = Callable[[asyncio.Event], Awaitable[int]]


def run_until_signalled(settings: Settings, work: Work) -> int:
    """Run `work`, which drains when the event it is given is set; its answer is the exit code."""
    configure(settings.log, message_fields)
    quieten()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_run(work))
    return uvloop.run(_run(work))


async def _run(work: Work) -> int:
    break_cleanly()
    stop = asyncio.Event()
    _listen(stop)
    return await work(stop)


def _listen(stop: asyncio.Event) -> None:
    """The first signal drains; a second one exits now."""

    def told() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told)
