"""Which boxes are open in which loop, and the one-line form: `await charge.deliver({...}, headers=…)`."""

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from worker.testing.box import Box

_open: "WeakKeyDictionary[asyncio.AbstractEventLoop, list[Box]]" = WeakKeyDictionary()


def opened(box: "Box") -> None:
    """The box is open in the running loop, in front of earlier ones."""
    _open.setdefault(asyncio.get_running_loop(), []).insert(0, box)


def closed(box: "Box") -> None:
    _open[asyncio.get_running_loop()].remove(box)


def find(handler: Any) -> "Box | None":
    """The innermost open box that has this handler."""
    return next((box for box in _open.get(asyncio.get_running_loop(), []) if handler in box.registry.handlers), None)
