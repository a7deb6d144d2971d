"""The one-line form: `await charge.deliver({...}, headers=…)`, installed on handlers by importing this package."""

from collections.abc import AsyncIterator
from typing import Any

from worker.rules.handlers import Handler
from worker.rules.registry import Registry
from worker.testing.box import Box
from worker.testing.delivered import Delivered
from worker.testing.opened import find


async def deliver(handler: Handler, payload: Any = None, **how: Any) -> Delivered:
    """Deliver to the innermost open box that has this handler, or to one of its own that lives as long as the test's loop.

    A box of its own knows only this handler: no lifespans, so `context.resources` is None. `how` is as in `Box.deliver`.
    """
    box = find(handler)
    if box is None:
        own = _own_box(handler)
        box = await anext(own)
        box.kept_open_by = own
    return await box.deliver(handler, payload, **how)


# An async generator: a loop that ends closes those it has, and with them the boxes.
async def _own_box(handler: Handler) -> AsyncIterator[Box]:
    registry = Registry()
    registry.handlers.append(handler)
    async with Box(registry) as box:
        yield box


# Set from here, because the engine does not know that tests exist.
Handler.deliver = deliver
