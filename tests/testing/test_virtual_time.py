"""Time passes only when something waits for it, and then at once."""

import asyncio
import time

import pytest

from tests.testing.shop import charge, gateway, quick, registry, slow
from worker.testing import Box, VirtualClock


def failing(times: int, error: Exception | None = None) -> None:
    """Let the handler fail before its effect that often."""

    def behave() -> None:
        nonlocal times
        times -= 1
        if times >= 0:
            raise error or ValueError(f"{times} left")

    gateway.behave = behave


async def test_retries_in_line_happen_with_their_backoff_and_without_waiting(box: Box) -> None:
    failing(3)
    virtual, real = box.clock.seconds, time.monotonic()
    delivered = await box.deliver(charge, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.attempts, delivered.runs) == ("executed", 3, 4)
    assert [str(error) for error in delivered.errors] == ["2 left", "1 left", "0 left"]
    assert 3.5 <= box.clock.seconds - virtual <= 7.5
    assert time.monotonic() - real < 1
    assert len(gateway.charged) == 1


async def test_attempts_are_capped_and_then_the_record_is_dead_lettered(box: Box) -> None:
    failing(9)
    delivered = await box.deliver(charge, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.reason) == ("dead_lettered", "retries_exhausted")
    assert delivered.attempts == delivered.runs == len(delivered.errors) == 5
    again = await box.redeliver(delivered)
    assert (again.outcome, again.reason, again.runs) == ("dead_lettered", "retries_exhausted", 0)


async def test_a_retry_far_away_is_parked_and_runs_when_it_is_due(box: Box) -> None:
    failing(1)
    delivered = await box.deliver(slow, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.reason) == ("parked", "retry")
    entry = box.entry(slow, key="d")
    assert entry is not None
    assert (entry.state, entry.attempts, entry.held) == ("failed_retryable", 1, 1)
    assert entry.due_in is not None
    await box.advance(entry.due_in - 1)
    assert box.now(delivered).outcome == "parked"
    await box.advance("3s")
    now = box.now(delivered)
    assert (now.outcome, now.result, now.runs) == ("executed", "receipt-1", 2)
    assert gateway.started == [("d", 1, False), ("d", 2, True)]
    assert box.parked == []
    entry = box.entry(slow, key="d")
    assert entry is not None
    assert entry.held == 0


async def test_a_handler_that_waits_takes_virtual_time_only(box: Box) -> None:
    gateway.act = lambda: asyncio.sleep(25)
    virtual, real = box.clock.seconds, time.monotonic()
    assert (await box.deliver(charge, {"delivery_id": "d"})).outcome == "executed"
    assert box.clock.seconds - virtual == pytest.approx(25, abs=0.1)
    assert time.monotonic() - real < 2


async def test_a_handler_that_never_ends_is_asked_to_stop_at_its_timeout(box: Box) -> None:
    gateway.act = lambda: asyncio.sleep(3600)
    delivered = await box.deliver(charge, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.reason) == ("parked", "unknown")
    assert isinstance(delivered.errors[0], asyncio.CancelledError)
    entry = box.entry(charge, key="d")
    assert entry is not None
    assert (entry.state, entry.error) == ("unknown", "CancelledError")


async def test_a_handler_that_never_ends_is_asked_to_stop_at_every_attempt(box: Box) -> None:
    gateway.behave = lambda: asyncio.sleep(3600)
    delivered = await box.deliver(quick, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.reason, delivered.runs) == ("dead_lettered", "retries_exhausted", 2)


async def test_a_handler_may_wait_for_what_the_test_does(box: Box) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        entered.set()
        await release.wait()

    gateway.act = act
    delivering = asyncio.ensure_future(box.deliver(charge, {"delivery_id": "d"}))
    await entered.wait()
    entry = box.entry(charge, key="d")
    assert entry is not None
    assert entry.state == "in_progress"
    release.set()
    assert (await delivering).outcome == "executed"


async def test_outside_the_calls_of_a_box_time_is_real(box: Box) -> None:
    await box.advance("1h")
    real, started = time.monotonic(), asyncio.get_running_loop().time()
    await asyncio.sleep(0.02)
    assert time.monotonic() - real >= 0.02
    assert asyncio.get_running_loop().time() - started >= 0.02


async def test_a_closed_box_gives_the_loop_its_real_time_back() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    async with Box(registry, clock=VirtualClock()) as box:
        await box.advance("1h")
    assert loop.time() - before >= 3_600
    real = time.monotonic()
    await asyncio.sleep(0.02)
    assert time.monotonic() - real >= 0.02


async def test_a_thread_that_works_for_a_handler_is_waited_for(box: Box) -> None:
    gateway.act = lambda: asyncio.to_thread(time.sleep, 0.05)
    delivered = await box.deliver(charge, {"delivery_id": "d"})
    assert delivered.outcome == "executed"


async def test_an_answer_over_a_socket_is_waited_for(box: Box) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()

    async def act() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()

    gateway.act = act
    assert (await box.deliver(charge, {"delivery_id": "d"})).outcome == "executed"
    server.close()


async def test_an_entry_is_kept_by_its_leases_over_many_hours(box: Box) -> None:
    release = asyncio.Event()
    gateway.behave = release.wait
    running = asyncio.ensure_future(box.deliver(slow, {"delivery_id": "d"}))
    await gateway.busy.wait()
    await box.advance("9m")
    entry = box.entry(slow, key="d")
    assert entry is not None
    assert entry.state == "in_progress"
    release.set()
    assert (await running).outcome == "executed"


async def test_a_record_behind_a_long_run_of_the_same_process_is_parked_after_the_hold(box: Box) -> None:
    gateway.behave = lambda: asyncio.sleep(300)
    first, second = await box.deliver_twice(slow, {"delivery_id": "d"})
    assert first.outcome == "executed"
    assert second.outcome == "parked"
    assert second.reason == "hold"


async def test_two_records_of_one_key_whose_handler_failed_are_not_in_each_others_way(box: Box) -> None:
    failing(1)
    first, second = await box.deliver_twice(charge, {"delivery_id": "d"})
    assert sorted([str(first.outcome), str(second.outcome)]) == ["executed", "replayed"]
    assert len(gateway.charged) == 1
