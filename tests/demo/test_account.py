"""The account at the end can fail: every way to break the promise shows."""

import random
from collections import Counter
from pathlib import Path

import pytest

from worker.demo.audit import Book
from worker.demo.messages import TOPICS, Delivery, Message, compose, deliver
from worker.demo.tally import Entry, Facts, Tally, tally

DONE = Entry("completed", 0)
DOUBT = Entry("unknown", 1)
CRASHED = Entry("completed", 1)


def account(operation: str, entry: Entry | None, effects: int) -> Tally:
    message = next(one for one in compose("run", 3, random.Random(1)) if one.operation == operation)
    copies = [Delivery(message, 0, ()), Delivery(message, 1, ())]
    entries = {} if entry is None else {message.key: entry}
    parked = 2 if entry is DOUBT else 0
    return tally([message], copies, Facts(Counter({message.reference: effects}), entries, parked, 0))


@pytest.mark.parametrize("operation", TOPICS)
def test_one_effect_and_a_completed_entry_is_as_it_should_be(operation: str) -> None:
    found = account(operation, DONE, 1)
    assert (found.executed, found.replayed, found.lost, found.twice) == (1, 1, 0, 0)
    assert found.kept_promise


@pytest.mark.parametrize(
    ("entry", "effects"), [(DONE, 0), (None, 0), (None, 1), (Entry("failed_retryable", 0), 0), (CRASHED, 0)]
)
def test_a_key_without_effect_or_without_its_entry_is_lost(entry: Entry | None, effects: int) -> None:
    found = account("charge", entry, effects)
    assert (found.executed, found.lost) == (0, 1)
    assert not found.kept_promise


@pytest.mark.parametrize(
    ("operation", "entry", "effects"),
    [
        ("charge", DONE, 2),
        ("charge", DOUBT, 2),
        ("charge", CRASHED, 2),
        ("record_order", DONE, 2),
        ("record_order", CRASHED, 2),
        ("index_document", DONE, 2),
        ("index_document", CRASHED, 3),
    ],
)
def test_a_second_effect_is_done_twice(operation: str, entry: Entry, effects: int) -> None:
    found = account(operation, entry, effects)
    assert found.twice == 1
    assert not found.kept_promise


def test_a_repeatable_effect_may_be_repeated_after_a_crash_and_is_shown() -> None:
    found = account("index_document", CRASHED, 2)
    assert (found.executed, found.again, found.twice) == (1, 1, 0)


@pytest.mark.parametrize("effects", [0, 1])
def test_a_doubt_is_a_doubt_whether_or_not_the_effect_happened(effects: int) -> None:
    found = account("charge", DOUBT, effects)
    assert (found.executed, found.in_doubt, found.happened, found.replayed, found.lost) == (0, 1, effects, 0, 0)
    assert found.kept_promise


def test_the_same_seed_sends_the_same_messages() -> None:
    def sent(seed: int) -> list[Delivery]:
        chance = random.Random(seed)
        return deliver(compose("run", 300, chance), chance)

    assert sent(1) == sent(1) != sent(2)
    copies = Counter(delivery.message for delivery in sent(1))
    assert len(copies) == 300
    assert set(copies.values()) == {1, 2, 3}
    assert {(one.operation, one.in_header) for one in copies} == {
        ("charge", True),
        ("charge", False),
        ("record_order", False),
        ("index_document", True),
        ("index_document", False),
    }
    assert len({_identity(one) for one in copies}) == 300


def _identity(message: Message) -> tuple[str, str]:
    return (message.operation, message.key)


def test_a_book_is_read_as_it_grows_and_a_torn_line_hides_no_other(tmp_path: Path) -> None:
    file = tmp_path / "gateway.jsonl"
    book = Book(file, "account")
    assert not book.read()
    with file.open("ab", buffering=0) as writer:
        writer.write(b'\n{"account": "a"}')
        assert book.read() == {"a": 1}
        writer.write(b'\n{"account": "b"')
        assert book.read() == {"a": 1}
        writer.write(b'\n{"account": "a"}\n{"account": "c"}')
        assert book.read() == {"a": 2, "c": 1}
        assert book.read() == {"a": 2, "c": 1}
