"""Lengths of time as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import ConfigError
from worker.rules.durations import duration, format_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("14d", 14 * 86400),
        ("1h30m", 5400),
        ("2w", 14 * 86400),
        ("250ms", 0.25),
        (" 10s ", 10),
        ("1d2h3m4s", 93784),
        ("0s", 0),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
        (timedelta(hours=1), 3600),
        ("15us", 15e-6),
    ],
)
def test_the_usual_forms_are_read(written: str | float | timedelta, seconds: float) -> None:
    assert duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " ",
        "s",
        "5 m",
        "5x",
        "-5s",
        "1.5h",
        "30m1h",
        "1h1h",
        "1h-5m",
        "٣s",
        "forever",
        "1_000s",
        "9" * 30 + "d",
        "1s" * 99,
        -1,
        -0.1,
        True,
        None,
        b"5s",
        float("nan"),
        float("inf"),
        10**30,
        timedelta(seconds=-1),
        ["5s"],
    ],
)
def test_anything_else_is_refused_with_the_value_and_the_forms(wrong: object) -> None:
    with pytest.raises(ConfigError) as refused:
        duration(wrong)  # type: ignore[arg-type]
    assert isinstance(refused.value, ValueError)
    assert repr(wrong) in str(refused.value)
    assert "1h30m" in str(refused.value)


@given(st.timedeltas(min_value=timedelta(0)))
def test_what_is_written_is_read_back_unchanged(length: timedelta) -> None:
    assert duration(format_duration(length)) == length


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(days=14), "14d"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(hours=24), "1d"),
    ],
)
def test_lengths_are_written_briefly(length: timedelta, text: str) -> None:
    assert format_duration(length) == text
