"""Dead letters of six systems: where each came from, why, and what the record was before."""

import pytest

from worker.rules.dialects import read_letter
from worker.rules.record import Record

AUTHOR = (("trace", b"abc"), ("content-type", b"application/json"))
WRITTEN = {
    "oncebox": {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"41",
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"2",
        "__dlq.errors.message": b"2 attempts failed",
        "oncebox.scope": b"jobs",
        "oncebox.operation": b"order",
        "oncebox.key": b"k",
        "oncebox.reason": b"retries_exhausted",
        "oncebox.timestamp": b"1700000000000",
        "oncebox.timestamp-type": b"LogAppendTime",
    },
    "share-group": {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"41",
        "__dlq.errors.group": b"share",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": b"rejected",
    },
    "spring": {
        "kafka_dlt-original-topic": b"orders",
        "kafka_dlt-original-partition": (3).to_bytes(4, "big"),
        "kafka_dlt-original-offset": (41).to_bytes(8, "big"),
        "kafka_dlt-original-timestamp": (1700000000000).to_bytes(8, "big"),
        "kafka_dlt-original-timestamp-type": b"CreateTime",
        "kafka_dlt-exception-fqcn": b"java.lang.IllegalStateException",
        "kafka_dlt-exception-stacktrace": b"at ...",
    },
    "connect": {
        "__connect.errors.topic": b"orders",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"41",
        "__connect.errors.exception.message": b"no",
        "__connect.errors.task.id": b"0",
    },
    "streams": {
        "__streams.errors.topic": b"orders",
        "__streams.errors.partition": b"3",
        "__streams.errors.offset": b"41",
        "__streams.errors.stacktrace": b"at ...",
    },
    "karafka": {
        "source_topic": b"orders",
        "source_partition": b"3",
        "source_offset": b"41",
        "source_consumer_group": b"g",
        "source_attempts": b"3",
        "source_trace_id": b"t",
    },
}


def letter(*headers: tuple[str, bytes | None]) -> Record:
    return Record("dlq", 0, 7, 1800000000000, 0, b"key", b"value", headers)


@pytest.mark.parametrize("dialect", WRITTEN)
def test_the_record_is_what_it_was_where_it_was(dialect: str) -> None:
    read = read_letter(letter(*AUTHOR, *WRITTEN[dialect].items()))
    assert read.dialect == dialect
    assert read.source == "orders/3@41"
    was = read.restored()
    assert (was.topic, was.partition, was.offset, was.key, was.value) == ("orders", 3, 41, b"key", b"value")
    assert tuple(was.headers) == (*AUTHOR, ("oncebox.redrives", b"1"))


def test_times_and_reasons_are_read() -> None:
    own = read_letter(letter(*WRITTEN["oncebox"].items()))
    assert (own.reason, own.handler, own.key, own.message) == (
        "retries_exhausted",
        "jobs/order",
        b"k",
        "2 attempts failed",
    )
    assert (own.restored().timestamp, own.restored().timestamp_type) == (1700000000000, 1)
    assert read_letter(letter(*WRITTEN["spring"].items())).restored().timestamp == 1700000000000
    assert read_letter(letter(*WRITTEN["connect"].items())).restored().timestamp == 1800000000000


def test_a_topic_alone_is_no_position() -> None:
    read = read_letter(letter(*AUTHOR, ("x-original-topic", b"orders")))
    assert (read.topic, read.source) == ("orders", "orders")
    was = read.restored()
    assert (was.topic, was.partition, was.offset) == ("dlq", 0, 7)


def test_whoever_says_nothing_is_left_as_it_is() -> None:
    read = read_letter(letter(*AUTHOR))
    assert (read.dialect, read.source, read.reason) == (None, None, None)
    assert tuple(read.restored().headers) == (*AUTHOR, ("oncebox.redrives", b"1"))


def test_headers_of_other_dialects_are_their_authors() -> None:
    read = read_letter(letter(*WRITTEN["connect"].items(), ("source_trace_id", b"mine"), ("original_price", b"5")))
    assert [name for name, _ in read.restored().headers] == ["source_trace_id", "original_price", "oncebox.redrives"]


def test_redrives_add_up() -> None:
    read = read_letter(letter(("oncebox.redrives", b"1"), *WRITTEN["oncebox"].items(), ("oncebox.redrives", b"2")))
    assert read.redrives == 2
    assert [h for h in read.restored().headers if h[0] == "oncebox.redrives"] == [("oncebox.redrives", b"3")]


@pytest.mark.parametrize("nonsense", [b"", b"-", b"1e9", b"9" * 40, b"\xff\xfe", "\u0663".encode()])
def test_a_header_that_cannot_be_read_says_nothing(nonsense: bytes) -> None:
    given = {**WRITTEN["oncebox"], "__dlq.errors.offset": nonsense, "oncebox.redrives": nonsense}
    read = read_letter(letter(*given.items()))
    assert (read.offset, read.redrives) == (None, 0)
    assert read.restored().offset == 7
