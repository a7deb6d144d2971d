"""The one-line form: `await charge.deliver({...}, headers=…)`, installed on handlers by importing this package."""

from collections.abc import AsyncIterator
from typing import Any

from worker.rules.handlers import Handler
from worker.rules.registry import Registry
from worker.testing.box import Box
from worker.testing.delivered import Delivered
from worker.testing.opened import find


async def deliver(handler: Handler, payload: Any = None, **how: Any) -> Delivered:
    """Deliver to the innermost open box that has this handler, or without one to a box of its own.

    `how` is as in `Box.deliver`. A handler's own box lives as long as the test's loop; it knows only this handler and
    no lifespans, so there `context.resources` is None.
    """
    box = find(handler)
    if box is None:
        opening = _own_box(handler)
        box = await anext(opening)
        box.kept_open_by = opening
    return await box.deliver(handler, payload, **how)


async def _own_box(handler: Handler) -> AsyncIterator[Box]:
    """A generator, because a loop that ends closes the generators it has: nobody else would close the box."""
    registry = Registry()
    registry.handlers.append(handler)
    async with Box(registry) as box:
        yield box


setattr(Handler, "deliver", deliver)  # noqa: B010 - from here, because the engine does not know that tests exist
