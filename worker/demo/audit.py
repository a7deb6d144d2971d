"""The auditor: reads offsets, effects and entries from outside, and changes nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from confluent_kafka import Consumer, KafkaException, TopicPartition

from worker.demo.messages import PARTITIONS, TOPICS, Operation, topic_of
from worker.demo.sender import Place
from worker.demo.stage import Stage
from worker.demo.tally import Entry, Facts
from worker.ledger.queries import in_schema

_STATES = "SELECT state, count(*) FROM oncebox.readable_entries WHERE starts_with(key, $1) GROUP BY state"
_DUE = "SELECT count(*) FROM oncebox.parked WHERE starts_with(topic, $1) AND due_at IS NOT NULL"
_ENTRIES = "SELECT operation, key, state, crashes FROM oncebox.readable_entries WHERE starts_with(key, $1)"
_PARKED = "SELECT topic, count(*) FROM oncebox.parked WHERE starts_with(topic, $1) GROUP BY topic"
_CHARGING = """
SELECT EXISTS (SELECT 1 FROM oncebox.sessions s
                 JOIN oncebox.open_claims c ON c.session = s.id
                 JOIN oncebox.readable_entries e ON e.id = ANY(c.ids) AND e.fence = c.fence
                WHERE s.pid = $1 AND s.ended_at IS NULL AND e.operation = 'charge' AND e.state = 'in_progress')
"""
_ORDERS = "SELECT client_reference FROM example_orders WHERE starts_with(client_reference, $1)"


@dataclass(frozen=True, slots=True)
class Look:
    """One look at everything while it runs."""

    committed: Mapping[Place, int]
    effects: int
    states: Mapping[str, int]
    due: int

    @property
    def finished(self) -> int:
        return sum(self.committed.values())

    def reached(self, ends: Mapping[Place, int]) -> bool:
        """Whether everything that was sent is finished."""
        return all(self.committed.get(place, 0) >= end for place, end in ends.items())

    @property
    def unsettled(self) -> int:
        return self.states.get("in_progress", 0) + self.states.get("failed_retryable", 0) + self.due


class Book:
    """Somebody else's book, read as it grows; a line's name is under the given field."""

    def __init__(self, file: Path, field: str) -> None:
        self._file = file
        self._field = field
        self._rest = b""
        self._read = 0
        self.seen: Counter[str] = Counter()

    def read(self) -> Counter[str]:
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            self._read += len(new)
            *lines, self._rest = (self._rest + new).split(b"\n")
            self.seen.update(line[self._field] for line in map(_line, lines) if line)
        return self.seen + Counter(line[self._field] for line in [_line(self._rest)] if line)


class Auditor:
    """Looks from outside: the group's commits without joining it, effects where they happened, the ledger's view."""

    def __init__(self, stage: Stage, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._run = stage.run
        self._connection = connection
        self._schema = stage.environment["ONCEBOX_SCHEMA"]
        settings = {**stage.kafka_settings, "group.id": stage.run, "enable.auto.commit": False}
        self._consumer = Consumer(settings)
        self._last: dict[Place, int] = {}
        self._sources = [topic_of(stage.run, operation) for operation in TOPICS]
        self._gateway = Book(stage.folder / "gateway.jsonl", "account")
        self._index = Book(stage.folder / "index.jsonl", "id")

    async def look(self) -> Look:
        effects = await self.effects()
        states = await self._fetch(_STATES, f"{self._run}-")
        due = await self._fetch(_DUE, f"{self._run}.")
        committed = await asyncio.to_thread(self._committed)
        return Look(
            committed, sum(found.total() for found in effects.values()), {r[0]: r[1] for r in states}, due[0][0]
        )

    async def effects(self) -> dict[Operation, Counter[str]]:
        """How often each reference was acted upon."""
        orders = await self._connection.fetch(_ORDERS, f"{self._run}-")
        return {
            "charge": self._gateway.read(),
            "record_order": Counter(row[0] for row in orders),
            "index_document": self._index.read(),
        }

    async def is_charging(self, pid: int) -> bool:
        """Whether this worker has claimed a charge and not finished it yet."""
        return bool((await self._fetch(_CHARGING, pid))[0][0])

    async def facts(self) -> dict[Operation, Facts]:
        """Everything the account needs, once all workers have stopped."""
        entries: dict[str, dict[str, Entry]] = {operation: {} for operation in TOPICS}
        for operation, key, state, crashes in await self._fetch(_ENTRIES, f"{self._run}-"):
            entries[operation][key] = Entry(state, crashes)
        parked = {row[0]: row[1] for row in await self._fetch(_PARKED, f"{self._run}.")}
        dead = await asyncio.to_thread(self._dead_letters)
        topics = {operation: topic_of(self._run, operation) for operation in TOPICS}
        return {
            operation: Facts(found, entries[operation], parked.get(topics[operation], 0), dead[topics[operation]])
            for operation, found in (await self.effects()).items()
        }

    def close(self) -> None:
        self._consumer.close()

    async def _fetch(self, query: str, wanted: str | int) -> "list[asyncpg.Record]":
        return await self._connection.fetch(in_schema(query, self._schema), wanted)

    def _committed(self) -> dict[Place, int]:
        wanted = [TopicPartition(topic, number) for topic in self._sources for number in range(PARTITIONS)]
        try:
            found = self._consumer.committed(wanted, timeout=10)
        except KafkaException:
            return self._last  # the coordinator is moving, or not there yet: the next look tells
        self._last = {(place.topic, place.partition): max(place.offset, 0) for place in found}
        return self._last

    def _dead_letters(self) -> Counter[str]:
        dead: Counter[str] = Counter()
        for topic in self._sources:
            for number in range(PARTITIONS):
                first, end = self._consumer.get_watermark_offsets(TopicPartition(f"dlq.{topic}", number), timeout=10)
                dead[topic] += end - first
        return dead


def _line(text: bytes) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(text)
    except ValueError:
        return {}
    return found
