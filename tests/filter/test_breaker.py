"""When Redis is left alone, and for how long."""

from typing import Any

import pytest

from worker.filter.breaker import Breaker

ERROR = ConnectionError("refused")


class Bench:
    """A breaker on a clock that obeys."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.notices: list[tuple[str, dict[str, Any]]] = []
        self.breaker = Breaker(
            "reads", lambda event, **fields: self.notices.append((event, fields)), clock=lambda: self.now
        )

    def begin(self) -> int:
        era = self.breaker.begin()
        assert era is not None
        return era

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.failed(self.begin(), ERROR)

    def shut(self) -> bool:
        """Nothing may begin, and both ways of asking agree."""
        ready = self.breaker.ready
        if not ready:
            assert self.breaker.begin() is None
        return not ready


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_opens_after_three_failures_in_a_row(bench: Bench) -> None:
    bench.fail(2)
    bench.breaker.succeeded(bench.begin())
    bench.fail(2)
    assert not bench.shut()
    bench.fail()
    assert bench.shut()
    assert bench.notices == [
        ("filter_paused", {"calls": "reads", "error": "refused", "next": "Postgres answers without it"})
    ]


def test_the_pause_doubles_up_to_thirty_seconds(bench: Bench) -> None:
    bench.fail(3)
    for pause in (1, 2, 4, 8, 16, 30, 30):
        bench.now += pause - 0.001
        assert bench.shut()
        bench.now += 0.001
        bench.fail()
        assert bench.shut()
    assert len(bench.notices) == 1


def test_one_call_tries_and_the_others_wait_for_its_news(bench: Bench) -> None:
    bench.fail(3)
    bench.now += 1
    trial = bench.begin()
    assert bench.shut()
    bench.breaker.succeeded(trial)
    assert not bench.shut()
    assert bench.notices[-1] == ("filter_resumed", {"calls": "reads", "after_seconds": 1.0})


def test_after_a_recovery_the_pause_is_short_again(bench: Bench) -> None:
    bench.fail(3)
    bench.now += 1
    bench.fail()
    bench.now += 2
    bench.breaker.succeeded(bench.begin())
    bench.fail(3)
    bench.now += 1
    assert not bench.shut()


def test_a_cancelled_try_leaves_the_turn_to_the_next(bench: Bench) -> None:
    bench.fail(3)
    bench.now += 1
    bench.breaker.abandoned(bench.begin())
    assert not bench.shut()
    bench.breaker.succeeded(bench.begin())
    assert bench.notices[-1][0] == "filter_resumed"


def test_calls_from_before_the_pause_neither_end_nor_prolong_it(bench: Bench) -> None:
    early = [bench.begin() for _ in range(4)]
    bench.fail(3)
    bench.breaker.failed(early[0], ERROR)
    bench.breaker.succeeded(early[1])
    assert bench.shut()
    bench.now += 1
    trial = bench.begin()
    bench.breaker.abandoned(early[2])
    bench.breaker.succeeded(early[3])
    assert bench.shut()
    bench.breaker.succeeded(trial)
    assert not bench.shut()


def test_an_error_without_text_is_told_by_its_type(bench: Bench) -> None:
    for _ in range(3):
        bench.breaker.failed(bench.begin(), TimeoutError())
    assert bench.notices[0][1]["error"] == "TimeoutError"
