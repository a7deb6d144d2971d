"""Strands against a naive model: items of a strand become first in order, whatever ends when."""

import math
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from worker.engine.items import Item, Stage
from worker.engine.routes import Route
from worker.engine.strands import Strands
from worker.rules.lanes import Lane
from worker.rules.record import Record


def item(lane: Lane, offset: int, key: bytes | None, order: str = "key") -> Item:
    made = Item(Record("t", 0, offset, key=key), lane)
    made.route = cast(Route, SimpleNamespace(order=order))
    return made


@given(keys=st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=30), data=st.data())
def test_items_become_first_in_the_order_they_entered(keys: list[bytes | None], data: Any) -> None:
    lane, strands = Lane("t", 0, 0), Strands()
    waiting: dict[bytes | None, list[Item]] = {}
    alive: list[Item] = []
    for offset, key in enumerate(keys):
        made = item(lane, offset, key)
        may_claim = strands.enter(made)
        line = [made] if key is None else [*waiting.setdefault(key, []), made]
        if key is not None:
            waiting[key] = line
        assert may_claim == (line[0] is made)
        alive.append(made)
        if alive and data.draw(st.booleans()):
            end(strands, waiting, alive, data.draw(st.sampled_from(alive)))
        check(waiting)
    while alive:
        end(strands, waiting, alive, data.draw(st.sampled_from(alive)))
        check(waiting)
    assert not any(strands._last.values())


def end(strands: Strands, waiting: dict[bytes | None, list[Item]], alive: list[Item], ending: Item) -> None:
    ending.stage = Stage.ENDED
    strands.leave(ending)
    alive.remove(ending)
    line = waiting.get(ending.record.key)
    while line and line[0].stage is Stage.ENDED:
        line.pop(0)


def check(waiting: dict[bytes | None, list[Item]]) -> None:
    for line in waiting.values():
        for place, one in enumerate(line):
            assert one.first == (place == 0)


def test_behind_the_first_only_what_follows_claims_may_be_claimed_and_two_at_most_have_not_started() -> None:
    lane, strands = Lane("t", 0, 0), Strands()
    line = [item(lane, n, b"k") for n in range(4)]
    assert [strands.enter(one) for one in line] == [True, False, False, False]
    first, second, third, fourth = line
    for stage in Stage:
        for behind in Stage:
            first.stage, second.stage = stage, behind
            assert second.may_claim is (stage in (Stage.CLAIMED, Stage.RUNNING))
            assert third.may_claim is (stage is Stage.RUNNING and behind is Stage.CLAIMED)
            first.deadline = math.inf
            assert not third.may_claim, "what waits for a thread or a connection is ahead of its handler, too"
            first.deadline = 1.0
            for last in Stage:
                third.stage = last
                assert not fourth.may_claim


def test_orders_and_lanes_are_strands_of_their_own() -> None:
    one, two, strands = Lane("t", 0, 0), Lane("t", 0, 0), Strands()
    assert strands.enter(item(one, 0, b"k"))
    assert strands.enter(item(two, 0, b"k")), "another assignment never waits for an old one"
    assert strands.enter(item(one, 1, None)), "records without a key have no order"
    assert strands.enter(item(one, 2, b"k", order="none"))
    assert strands.enter(item(one, 3, b"x", order="partition"))
    assert not strands.enter(item(one, 4, b"y", order="partition"))
