"""Stopping a consumer whatever the broker does."""

import asyncio
from collections.abc import Callable
from typing import Any


async def stop_consumer(consumer: Any, within: float, notice: Callable[..., None]) -> None:
    """Stop a client; never hangs.

    With the broker away it raises CancelledError of its own: only a cancel of ours goes on.
    """
    try:
        await asyncio.wait_for(consumer.stop(), within)
    except BaseException as error:
        notice("consumer_stop_failed", error=type(error).__name__)
        await consumer._client.close()
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
