"""Order: records with one Kafka key start one after another; others do not wait for them."""

import asyncio
from typing import Any

from worker import Registry
from worker.rules.handlers import Handler
from worker.testing import Box


class Line:
    """A handler that takes a second, and what it has seen."""

    def __init__(self, **how: Any) -> None:
        self.registry = Registry()
        self.events: list[str] = []
        self.failures: dict[str, int] = {}
        self.handler: Handler = self.registry.handler("line", scope="jobs", key="id", kind="repeatable", **how)(
            self.run
        )

    async def run(self, message: dict[str, Any]) -> None:
        name = message["id"]
        self.events.append(f"{name} started")
        await asyncio.sleep(1)
        if self.failures.get(name, 0):
            self.failures[name] -= 1
            raise ValueError(name)
        self.events.append(f"{name} ended")

    async def deliver(self, box: Box, *records: tuple[str, str | None]) -> list[Any]:
        return await asyncio.gather(*(box.deliver(self.handler, {"id": name}, kafka_key=key) for name, key in records))


async def test_records_with_one_kafka_key_run_one_after_another() -> None:
    line = Line()
    async with Box(line.registry) as box:
        await line.deliver(box, ("a", "k"), ("b", "k"), ("c", "k"))
    assert line.events == [f"{name} {what}" for name in "abc" for what in ("started", "ended")]


async def test_records_with_different_kafka_keys_or_none_run_at_once() -> None:
    line = Line()
    async with Box(line.registry) as box:
        await line.deliver(box, ("a", "k"), ("b", "l"), ("c", None), ("d", None))
    assert sorted(line.events[:4]) == [f"{name} started" for name in "abcd"]


async def test_order_by_partition_keeps_everything_in_line() -> None:
    line = Line(order="partition")
    async with Box(line.registry) as box:
        await line.deliver(box, ("a", "k"), ("b", "l"), ("c", None))
    assert line.events == [f"{name} {what}" for name in "abc" for what in ("started", "ended")]


async def test_order_none_runs_one_kafka_key_at_once() -> None:
    line = Line(order="none")
    async with Box(line.registry) as box:
        await line.deliver(box, ("a", "k"), ("b", "k"))
    assert line.events[:2] == ["a started", "b started"]


async def test_a_retry_in_line_comes_before_the_next_record_of_its_key() -> None:
    line = Line()
    line.failures["a"] = 2
    async with Box(line.registry) as box:
        first, second = await line.deliver(box, ("a", "k"), ("b", "k"))
    assert line.events == ["a started", "a started", "a started", "a ended", "b started", "b ended"]
    assert (first.attempts, second.attempts) == (2, 0)


async def test_a_duplicate_ahead_in_line_does_not_disturb_the_order() -> None:
    line = Line()
    async with Box(line.registry) as box:
        outcomes = await line.deliver(box, ("a", "k"), ("b", "k"), ("a", "k"), ("c", "k"), ("b", "k"))
    assert [one.outcome for one in outcomes] == ["executed", "executed", "replayed", "executed", "replayed"]
    assert [event for event in line.events if "started" in event] == ["a started", "b started", "c started"]


async def test_partitions_do_not_wait_for_each_other() -> None:
    line = Line(order="partition")
    async with Box(line.registry) as box:
        await asyncio.gather(*(box.deliver(line.handler, {"id": str(n)}, partition=n) for n in range(3)))
    assert sorted(line.events[:3]) == ["0 started", "1 started", "2 started"]


async def test_at_most_so_many_of_a_handler_run_at_once() -> None:
    line = Line(concurrency=2)
    async with Box(line.registry) as box:
        await line.deliver(box, ("a", None), ("b", None), ("c", None))
    assert line.events[:2] == ["a started", "b started"]
    assert "ended" in line.events[2]
    assert line.events[3:5].count("c started") == 1
