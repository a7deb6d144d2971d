"""The watermark is the first unfinished offset, whatever finishes when, with gaps of any kind."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from worker.rules.watermark import Watermark


@dataclass
class One:
    """A record in flight."""

    offset: int
    finished: bool = False


@given(
    gaps=st.lists(st.integers(1, 5), max_size=40),
    fetches=st.lists(st.integers(1, 8), max_size=40),
    finish=st.randoms(use_true_random=False),
)
def test_it_never_passes_an_unfinished_record(gaps: list[int], fetches: list[int], finish: object) -> None:
    offsets = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    records = [One(offset) for offset in offsets]
    watermark: Watermark[One] = Watermark(0)
    unfinished: list[One] = []
    position, rest = 0, list(records)
    for size in fetches or [1]:
        batch, rest = rest[:size], rest[size:]
        position = batch[-1].offset + 3 if batch else position + 1
        position = min(position, rest[0].offset) if rest else position
        watermark.receive(batch, position)
        unfinished += batch
        finish.shuffle(unfinished)  # type: ignore[attr-defined]
        for one in unfinished[: len(unfinished) // 2]:
            one.finished = True
        unfinished = [one for one in unfinished if not one.finished]
        expected = min((one.offset for one in unfinished), default=position)
        assert watermark.advance() == expected


def test_with_nothing_unfinished_it_steps_over_control_records() -> None:
    watermark: Watermark[One] = Watermark(5)
    assert watermark.advance() == 5
    watermark.receive([], 9)
    assert watermark.advance() == 9


def test_an_older_position_does_not_move_it_back() -> None:
    watermark: Watermark[One] = Watermark(9)
    watermark.receive([], 7)
    assert watermark.advance() == 9
