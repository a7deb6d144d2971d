"""Portions: what is written at once is bounded in bytes, too.

One statement with every large result of a batch could take longer than any statement may, again at every repetition.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
MOST = 8 * 1024 * 1024


def portions(given: Sequence[T], sizes: Sequence[int], most: int = MOST) -> Iterator[Sequence[T]]:
    """Slices that hold at most that many bytes, or one item that is larger by itself; small ones stay whole."""
    if sum(sizes) <= most:
        yield given
        return
    start = held = 0
    for index, size in enumerate(sizes):
        if held and held + size > most:
            yield given[start:index]
            start, held = index, 0
        held += size
    yield given[start:]
