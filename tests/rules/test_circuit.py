"""A handler that fails in one way, again and again, is stopped before it empties a topic into dead letters."""

from worker.rules.circuit import Circuit


def failing(circuit: Circuit, times: int, error: str = "ConnectionError", now: float = 0.0) -> None:
    for _ in range(times):
        circuit.ended(error, now)


def test_ten_equal_failures_of_the_last_twenty_open_it() -> None:
    circuit = Circuit()
    failing(circuit, 9)
    assert not circuit.open
    assert circuit.ended("ConnectionError", 0.0)
    assert circuit.open


def test_different_failures_do_not_open_it() -> None:
    circuit = Circuit()
    for n in range(20):
        circuit.ended(f"Error{n % 3}", 0.0)
    assert not circuit.open


def test_failures_among_successes_are_forgotten() -> None:
    circuit = Circuit()
    for _ in range(30):
        failing(circuit, 1)
        for _ in range(2):
            circuit.ended(None, 0.0)
    assert not circuit.open


def test_half_open_lets_one_try_and_waits_longer_after_each_failure() -> None:
    circuit = Circuit()
    failing(circuit, 10)
    assert not circuit.may_try(4.9)
    assert circuit.may_try(5.0)
    assert not circuit.may_try(5.0)
    circuit.ended("ConnectionError", 6.0)
    assert not circuit.may_try(15.9)
    assert circuit.may_try(16.0)


def test_a_success_closes_it() -> None:
    circuit = Circuit()
    failing(circuit, 10)
    assert circuit.ended(None, 6.0)
    assert not circuit.open
    failing(circuit, 9)
    assert not circuit.open
