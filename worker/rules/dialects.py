"""Dead letters as six systems write them: where a record came from, why it is here, and what it was before.

Nothing is taken on trust: a header that cannot be read says nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from worker.rules.record import Record

Headers = Sequence[tuple[str, bytes | None]]
_REDRIVES: Final = "oncebox.redrives"


@dataclass(frozen=True, slots=True)
class Letter:
    """What a dead letter says about the record it was."""

    record: Record  # as it lies in the dead-letter topic
    dialect: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    timestamp_type: int | None = None
    group: str | None = None
    reason: str | None = None
    message: str | None = None
    scope: str | None = None
    operation: str | None = None
    tenant: bytes | None = None
    key: bytes | None = None
    attempts: int | None = None
    redrives: int = 0
    cut: bool = False  # its value was too large: the whole record is parked in the ledger

    @property
    def handler(self) -> str | None:
        return f"{self.scope}/{self.operation}" if self.scope and self.operation else None

    @property
    def place(self) -> str:
        return f"{self.record.partition}@{self.record.offset}"

    @property
    def source(self) -> str | None:
        if self.topic is None:
            return None
        return self.topic if self.offset is None else f"{self.topic}/{self.partition}@{self.offset}"

    def restored(self) -> Record:
        """The record as it was, and how often it was redriven; without a source position, at the letter's own."""
        record = self.record
        known = self.topic is not None and self.partition is not None and self.offset is not None
        kept = [(name, value) for name, value in record.headers if not added(name, self.dialect)]
        return Record(
            topic=self.topic if known and self.topic is not None else record.topic,
            partition=self.partition if known and self.partition is not None else record.partition,
            offset=self.offset if known and self.offset is not None else record.offset,
            timestamp=record.timestamp if self.timestamp is None else self.timestamp,
            timestamp_type=record.timestamp_type if self.timestamp_type is None else self.timestamp_type,
            key=record.key,
            value=record.value,
            headers=(*kept, (_REDRIVES, str(self.redrives + 1).encode())),
        )


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _number(value: bytes) -> int | None:
    text = value.decode(errors="replace").strip()
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20 else None


def _binary(value: bytes) -> int | None:
    """Spring writes partition, offset and timestamp as big-endian binary."""
    return int.from_bytes(value, "big", signed=True) if len(value) in (4, 8) else _number(value)


def _timestamp_type(value: bytes) -> int | None:
    return {"CreateTime": 0, "LogAppendTime": 1}.get(_text(value))


Reading = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class _Dialect:
    """One system's headers: which name fills which field, and how its bytes are read."""

    name: str
    sign: tuple[str, ...]  # one of these headers shows that the dialect was spoken
    fields: Mapping[str, tuple[str, Reading]]
    prefixes: tuple[str, ...] = ()  # what it adds, besides the fields' own headers


def _named(prefix: str, reading: Reading, **extra: tuple[str, Reading]) -> dict[str, tuple[str, Reading]]:
    numbers = {name: (f"{prefix}{name}", reading) for name in ("partition", "offset")}
    return {"topic": (f"{prefix}topic", _text), **numbers, **extra}


_DLQ: Final = "__dlq.errors."
_OWN: Final = "oncebox."
_SPRING: Final = "kafka_dlt-original-"
DIALECTS: Final = (
    _Dialect(
        "oncebox",
        ("oncebox.reason",),
        {
            **_named(_DLQ, _number),
            "group": (f"{_DLQ}group", _text),
            "message": (f"{_DLQ}message", _text),
            "reason": ("oncebox.reason", _text),
            "scope": ("oncebox.scope", _text),
            "operation": ("oncebox.operation", _text),
            "tenant": ("oncebox.tenant", bytes),
            "key": ("oncebox.key", bytes),
            "attempts": ("oncebox.attempts", _number),
            "timestamp": ("oncebox.timestamp", _number),
            "timestamp_type": ("oncebox.timestamp-type", _timestamp_type),
        },
        (_OWN, _DLQ),
    ),
    _Dialect(
        "share-group",
        (f"{_DLQ}topic",),
        {
            **_named(_DLQ, _number),
            "group": (f"{_DLQ}group", _text),
            "message": (f"{_DLQ}message", _text),
            "attempts": (f"{_DLQ}delivery.count", _number),
        },
        (_DLQ,),
    ),
    _Dialect(
        "spring",
        (f"{_SPRING}topic", f"{_SPRING}offset"),
        {
            **_named(_SPRING, _binary),
            "timestamp": (f"{_SPRING}timestamp", _binary),
            "timestamp_type": (f"{_SPRING}timestamp-type", _timestamp_type),
            "group": (f"{_SPRING}consumer-group", _text),
            "reason": ("kafka_dlt-exception-fqcn", _text),
            "message": ("kafka_dlt-exception-message", _text),
        },
        ("kafka_dlt-",),
    ),
    _Dialect(
        "connect",
        ("__connect.errors.topic",),
        {
            **_named("__connect.errors.", _number),
            "reason": ("__connect.errors.exception.class.name", _text),
            "message": ("__connect.errors.exception.message", _text),
            "group": ("__connect.errors.connector.name", _text),
        },
        ("__connect.errors.",),
    ),
    _Dialect(
        "streams",
        ("__streams.errors.topic",),
        {
            **_named("__streams.errors.", _number),
            "reason": ("__streams.errors.exception", _text),
            "message": ("__streams.errors.message", _text),
        },
        ("__streams.errors.",),
    ),
    _Dialect(
        "karafka",
        ("source_topic",),
        {
            **_named("source_", _number),
            "group": ("source_consumer_group", _text),
            "attempts": ("source_attempts", _number),
        },
        ("source_trace_id",),
    ),
    _Dialect("karafka before 2.4", ("original_topic",), _named("original_", _number), ("original_",)),
    _Dialect("x-original-topic", ("x-original-topic",), {"topic": ("x-original-topic", _text)}),
)


def read_letter(record: Record) -> Letter:
    """What a record of a dead-letter topic says; of a header that is there twice the last counts."""
    given = {name: value for name, value in record.headers if value is not None}
    redrives = max(_number(given.get(_REDRIVES, b"0")) or 0, 0)
    for dialect in DIALECTS:
        if any(sign in given for sign in dialect.sign):
            fields = {field: read(given[name]) for field, (name, read) in dialect.fields.items() if name in given}
            cut = "oncebox.cut-bytes" in given
            return Letter(record, dialect.name, redrives=redrives, cut=cut, **fields)  # type: ignore[arg-type]
    return Letter(record, redrives=redrives)


def added(name: str, spoken: str | None) -> bool:
    """Whether a header was put there by whoever wrote the dead letter, and not by the record's author."""
    if name == _REDRIVES:
        return True
    dialects = [dialect for dialect in DIALECTS if dialect.name == spoken]
    names = {name for dialect in dialects for name, _ in dialect.fields.values()}
    return name in names or any(name.startswith(dialect.prefixes) for dialect in dialects if dialect.prefixes)
