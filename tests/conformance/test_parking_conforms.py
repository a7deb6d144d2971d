"""Parking: what may be parked when, what it holds, when it is due."""

import pytest

from tests.conformance.making import bring
from tests.conformance.stores import Store
from tests.ledger.offers import id_of, record
from worker.rules.claims import State
from worker.rules.record import Record
from worker.rules.writes import Parking, position_id

IN_PROGRESS, COMPLETED, FAILED, UNKNOWN = State


async def test_a_record_waits_only_where_something_will_wake_it(store: Store) -> None:
    ledger = await store.worker()
    states: dict[str, State | None] = {"absent": None, **{state.name: state for state in State}}
    for offset, (key, state) in enumerate(states.items()):
        await bring(store, ledger, key, state)
        by_time = Parking(record(2 * offset), "hold", id_of(key), 1, due=30.0)
        by_entry = Parking(record(2 * offset + 1), "unknown", id_of(key), 1)
        moved_on = await ledger.parking.park([by_time, by_entry])
        assert (by_time.place in moved_on) is (state in (None, COMPLETED)), key
        assert (by_entry.place in moved_on) is (state is not UNKNOWN), key
        held = 0 if state is None else (await store.entry(key)).held
        assert held == 2 - len(moved_on), key
    assert await ledger.parking.counts() == {"hold": 3, "unknown": 1}


async def test_parking_twice_is_harmless_and_finishing_lets_go(store: Store) -> None:
    ledger = await store.worker()
    await bring(store, ledger, "k", UNKNOWN)
    parkings = [Parking(record(offset), "unknown", id_of("k"), 1) for offset in (0, 1)]
    for _ in range(2):
        assert await ledger.parking.park(parkings) == set()
    assert (await store.entry("k")).held == 2
    for _ in range(2):
        await ledger.parking.finish([parkings[0].place])
    assert (await store.entry("k")).held == 1
    await ledger.parking.finish([p.place for p in parkings])
    assert (await store.entry("k")).held == 0
    assert await store.parked() == {}


async def test_a_record_without_an_entry_is_parked_under_its_position(store: Store) -> None:
    ledger = await store.worker()
    parking = Parking(record(7), "unwritable:missing_key")
    assert await ledger.parking.park([parking]) == set()
    assert set(await store.parked()) == {(position_id(record(7)), "t", 0, 7)}
    await ledger.parking.finish([parking.place])
    assert await store.parked() == {}


async def test_due_records_come_back_byte_for_byte_oldest_first_and_are_taken_for_a_while(store: Store) -> None:
    ledger = await store.worker()
    operation = store.plan().operation
    await bring(store, ledger, "k", FAILED)
    headers = (("a", b"\x00\xff"), ("a", None), ("é", b""))
    whole = Record("t", 3, 9, timestamp=5, timestamp_type=1, key=None, value=None, headers=headers)
    other = Record("t", 3, 10, timestamp=-1, key=b"\x00", value=b"v")
    await ledger.parking.park(
        [
            Parking(whole, "retry", id_of("k"), operation, due=20.0),
            Parking(other, "hold", id_of("k"), operation, due=10.0),
            Parking(record(11), "hold", id_of("k"), operation, due=1000.0),
            Parking(record(12), "hold", id_of("k"), operation + 1000, due=0.0),
            Parking(record(13), "too_large:result"),
        ]
    )
    assert await ledger.parking.take_due([operation], 100, 60.0) == []
    await store.pass_time(30, ledger)
    taken = await ledger.parking.take_due([operation], 100, 60.0)
    assert sorted(parked.reason for parked in taken) == ["hold", "retry"]
    back = {parked.record.offset: parked for parked in taken}
    assert (back[9].record, back[9].operation) == (whole, operation)
    assert (back[10].record.key, back[10].record.value, back[10].record.timestamp) == (b"\x00", b"v", -1)
    assert back[9].place == (id_of("k"), "t", 3, 9)
    assert await ledger.parking.take_due([operation], 100, 60.0) == []
    await store.pass_time(61, ledger)
    assert len(await ledger.parking.take_due([operation], 1, 60.0)) == 1


async def test_a_parked_record_that_has_to_wait_again_keeps_its_place_with_the_new_reason(store: Store) -> None:
    ledger = await store.worker()
    await bring(store, ledger, "k", FAILED)
    first = Parking(record(), "retry", id_of("k"), 1, due=0.0)
    await ledger.parking.park([first])
    assert await ledger.parking.park([Parking(record(), "hold", id_of("k"), 1, due=50.0, again=True)]) == set()
    assert (await store.entry("k")).held == 1
    [(reason, due_in)] = (await store.parked()).values()
    assert reason == "hold"
    assert due_in == pytest.approx(50, abs=5)


async def test_a_parked_record_is_not_put_to_sleep_when_its_entry_has_left_unknown(store: Store) -> None:
    ledger = await store.worker()
    await bring(store, ledger, "k", FAILED)
    await ledger.parking.park([Parking(record(), "retry", id_of("k"), 1, due=0.0)])
    asleep = Parking(record(), "unknown", id_of("k"), 1, again=True)
    assert await ledger.parking.park([asleep]) == {asleep.place}
    [(_, due_in)] = (await store.parked()).values()
    assert due_in is not None
    assert (await store.entry("k")).held == 1
