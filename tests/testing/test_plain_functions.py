"""Plain functions run in threads, and are retried, replayed and settled like the others."""

import threading
import time

from tests.testing.shop import gateway, plain
from worker.testing import Box


async def test_a_plain_function_runs_in_a_thread_and_is_replayed(box: Box) -> None:
    gateway.behave = threading.get_ident
    first = await box.deliver(plain, {"delivery_id": "d"})
    again = await box.redeliver(first)
    assert (first.outcome, again.outcome) == ("executed", "replayed")
    assert first.result != str(threading.get_ident())
    assert len(gateway.charged) == 1


async def test_a_plain_function_that_takes_real_time_is_not_hurried(box: Box) -> None:
    gateway.behave = lambda: time.sleep(0.05)
    before = box.clock.seconds
    assert (await box.deliver(plain, {"delivery_id": "d"})).outcome == "executed"
    assert box.clock.seconds - before < 5


async def test_a_plain_function_that_fails_is_tried_again(box: Box) -> None:
    gateway.behave = lambda: 1 / 0 if len(gateway.started) == 1 else "fine"
    delivered = await box.deliver(plain, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.result, delivered.attempts) == ("executed", "fine", 1)
    assert isinstance(delivered.errors[0], ZeroDivisionError)


async def test_a_process_that_dies_around_a_plain_function_runs_it_again(box: Box) -> None:
    await box.deliver(plain, {"delivery_id": "d"}, crash="after_effect")
    [again] = await box.restart()
    assert again.outcome == "executed"
    assert len(gateway.charged) == 2
