"""Whatever a handler returns or raises, the worker goes on, and its neighbours notice nothing."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from worker import Effect, NotExecuted, Registry, Reject, Retries


class Message(BaseModel):
    """What the tests send."""

    id: str


class Unspeakable(NotExecuted):
    """An error whose text cannot be had."""

    def __str__(self) -> NoReturn:
        raise ValueError("no words")


def raising(error: BaseException) -> Callable[[], Any]:
    def end() -> NoReturn:
        raise error

    return end


def cycle() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["made"] = made
    return made


def too_deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(5000):
        made = [made]
    return made


def cancelled_too_late() -> str:
    """Ends with a cancel of its own task pending, as a timeout does that expires in the very step its body ends."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "fine"


ODD: dict[str, tuple[str, Callable[[], Any]]] = {
    "NUL in an error": ("failed_retryable", raising(NotExecuted("a\0b"))),
    "half a character in an error": ("failed_retryable", raising(NotExecuted("a\ud800b"))),
    "exit": ("failed_retryable", raising(SystemExit(3))),
    "interrupt": ("failed_retryable", raising(KeyboardInterrupt())),
    "NUL in a code": ("completed", raising(Reject("no", code="a\0b"))),
    "half a character in a rejection": ("completed", raising(Reject("a\ud800"))),
    "half a character": ("completed", lambda: "a\ud800"),
    "half a character in an object": ("completed", lambda: {"x": "a\ud800"}),
    "no JSON": ("completed", object),
    "a cycle": ("completed", cycle),
    "too deep": ("completed", too_deep),
    "too large": ("completed", lambda: "x" * 1_000_000),
    "an error without text": ("failed_retryable", raising(Unspeakable())),
    "half a character in a code": ("completed", raising(Reject("no", code="a\ud800b"))),
    "a late cancel": ("completed", cancelled_too_late),
}


async def test_an_odd_end_is_an_end_like_any_other(site: Site) -> None:
    odd = list(ODD)
    name, results, ran = site.topic(), site.topic(letters=False), Counter[str]()
    registry = Registry()

    @registry.handler(name, scope="payments", key="id", result_topic=results, retries=Retries(1))
    async def work(message: Message, effect: Effect) -> Any:
        ran[message.id] += 1
        if message.id in ODD:
            return ODD[message.id][1]()
        async with effect:
            await asyncio.sleep(0.01)  # a request to somewhere
        return "fine"

    neighbours = [f"k{n}" for n in range(4)]
    site.produce(name, [message(key) for key in (*odd, *neighbours)])
    async with site.worker(registry):
        await site.drained(name, within=6)
    expected = {**{key: ODD[key][0] for key in odd}, **dict.fromkeys(neighbours, "completed")}
    assert await site.states() == expected
    assert ran == dict.fromkeys(expected, 1)
    answers = Counter(dict(seen.headers)["oncebox.key"] for seen in site.read(results))
    assert answers == {key.encode(): 1 for key, found in expected.items() if found == "completed"}
