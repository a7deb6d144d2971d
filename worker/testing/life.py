"""The life of a simulated process: once it has ended, none of its tasks takes another step."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from typing import Any

from worker.engine.tasks import Tasks


class Life:
    """Whether the process lives. It ends as by kill -9: nothing is cancelled, nothing cleans up, nothing goes on."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def ended(self) -> bool:
        return self.over.done()

    def end(self) -> None:
        """Stop every task where it stands; the caller's own code goes on until its next await."""
        if not self.over.done():
            self.over.set_result(None)


class MortalTasks(Tasks):
    """The engine's tasks, as long as the process lives. What handlers start beside them is not stopped."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return super().spawn(_Mortal(work, self._life), name)


class _Mortal(Coroutine[Any, Any, Any]):
    """A coroutine that stands still for ever when it is resumed after the end."""

    def __init__(self, work: Coroutine[Any, Any, Any], life: Life) -> None:
        self._work = work
        self._life = life

    def send(self, value: Any) -> Any:
        if self._life.ended:
            return next(iter(asyncio.get_running_loop().create_future()))
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        if self._life.ended:
            # The box closes: let the coroutine go, whatever it would like to do in its last moment.
            self.close()
            raise asyncio.CancelledError
        return self._work.throw(*error)

    def close(self) -> None:
        with suppress(RuntimeError):
            self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()
