"""A site: one test's topics, group and schema, workers on it, and what its ledger says."""

import asyncio
import contextlib
import functools
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from confluent_kafka import Consumer as Reader
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.engine.nursery import Forked, nursery
from tests.stack import client
from tests.stack.client import Headers, Seen, Sent
from tests.waiting import eventually, eventually_sync
from worker.app import serve
from worker.ledger.migrate import migrate
from worker.rules.registry import Registry
from worker.settings import Settings, load_settings
from worker.stack.topics import create

QUICK = {
    "ONCEBOX_LEASE": "3s",
    "ONCEBOX_SESSION_TIMEOUT": "2s",
    "ONCEBOX_HEARTBEAT_INTERVAL": "200ms",
    "ONCEBOX_SETTLE_EVERY": "500ms",
    "ONCEBOX_DRAIN": "5s",
    "ONCEBOX_LOG_LEVEL": "info",
    "ONCEBOX_LOG_FORMAT": "json",
    "ONCEBOX_HTTP_PORT": "off",
}


@dataclass
class Site:
    """Everything one test needs to run workers and to look behind them."""

    bootstrap: str
    database_url: str
    schema: str
    group: str
    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    processes: list["Process"] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **QUICK,
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap,
            "DATABASE_URL": self.database_url,
            "ONCEBOX_SCHEMA": self.schema,
            "ONCEBOX_GROUP": self.group,
            "SITE_FOLDER": str(self.folder),
            **self.extra,
        }

    def settings(self, **changes: str) -> Settings:
        return load_settings(environ={**self.environment, **changes})

    async def migrate(self) -> None:
        await migrate(self.settings().database)

    @contextlib.asynccontextmanager
    async def worker(self, registry: Registry, **changes: str) -> AsyncIterator[asyncio.Task[None]]:
        """A worker in this process; what killed it is raised at the end."""
        stop = asyncio.Event()
        task = asyncio.create_task(serve(self.settings(**changes), registry, stop=stop))
        try:
            yield task
        finally:
            stop.set()
            await asyncio.wait_for(task, 30)

    async def run(self, registry: Registry, **changes: str) -> None:
        """A worker in this process until everything that is there now is finished."""
        await asyncio.wait_for(serve(self.settings(**changes), registry, stop=asyncio.Event(), until_idle=True), 60)

    def spawn(self, *words: str, **environment: str) -> "Process":
        """A worker in a process of its own: tests/engine/victim.py with these words."""
        log = self.folder / f"worker-{len(list(self.folder.glob('worker-*.log')))}.log"
        log.touch()
        process = Process(nursery().fork(words, {**os.environ, **self.environment, **environment}, log), log)
        self.processes.append(process)
        return process

    @functools.cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def produce(self, topic: str, records: Sequence[Sent | bytes]) -> list[tuple[int, int]]:
        return client.produce(self.bootstrap, topic, records)

    def read(self, topic: str) -> list[Seen]:
        """Everything in a topic now, by a client that is not the worker's."""
        return client.consume_all(self.bootstrap, topic)

    def topic(self, partitions: int = 1, *, letters: bool = True, **config: Any) -> str:
        """A topic of its own and, with `letters`, the topic of its dead letters."""
        name = f"t-{secrets.token_hex(4)}"
        wanted = {name: partitions, **({f"dlq.{name}": 1} if letters else {})}
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        create({"bootstrap.servers": self.bootstrap}, wanted, config=settings, exist_ok=False)
        return name

    def dead_letters(self, topic: str) -> list["Letter"]:
        """The dead letters of a topic, with the headers the worker added."""
        return [Letter.of(seen) for seen in self.read(f"dlq.{topic}")]

    async def fetch(self, query: str, *arguments: Any) -> list[Any]:
        """A query on the site's schema; `oncebox.` stands for it."""
        connection = await asyncpg.connect(self.database_url)
        try:
            return list(await connection.fetch(query.replace("oncebox.", f'"{self.schema}".'), *arguments))
        finally:
            await connection.close()

    async def count(self, table: str) -> int:
        rows = await self.fetch(f"SELECT count(*) FROM oncebox.{table}")
        return int(rows[0][0])

    async def states(self) -> dict[str, str]:
        rows = await self.fetch("SELECT key, state FROM oncebox.readable_entries")
        return {row["key"]: row["state"] for row in rows}

    async def lag(self, *topics: str) -> int:
        return await asyncio.to_thread(self._lag, topics)

    def _lag(self, topics: Sequence[str]) -> int:
        known = self.reader.list_topics(timeout=10).topics
        places = [TopicPartition(t, p) for t in topics for p in known[t].partitions]
        ends = {(p.topic, p.partition): self.reader.get_watermark_offsets(p, timeout=10)[1] for p in places}
        found = self.committed(places)
        return sum(end - found.get(place, 0) for place, end in ends.items())

    @functools.cached_property
    def reader(self) -> Reader:
        """A client that asks about the group without joining it.

        Not the admin client: its question for offsets ends the process when the coordinator is just coming up.
        """
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "isolation.level": "read_committed"}
        return Reader({**settings, "enable.auto.commit": False, "log_level": 0})

    def committed(self, places: Sequence[TopicPartition]) -> dict[tuple[str, int], int]:
        """What the group has committed, as an outsider sees it."""
        found = self.reader.committed(list(places), timeout=10)
        return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def committed_offsets(self, topic: str) -> dict[int, int]:
        """What the group has committed, by partition of one topic."""
        partitions = self.admin.list_topics(timeout=10).topics[topic].partitions
        found = self.committed([TopicPartition(topic, number) for number in partitions])
        return {partition: offset for (_, partition), offset in found.items()}

    def put_group(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Move the group, while it is down; a coordinator that is coming up refuses that inside its answer."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        wanted = ConsumerGroupTopicPartitions(self.group, places)

        def taken() -> bool:
            answer = self.admin.alter_consumer_group_offsets([wanted])[self.group].result(10)
            return all(place.error is None for place in answer.topic_partitions)

        eventually_sync(taken, 20, "the offsets of the group were not taken", every=0.1)

    async def drained(self, *topics: str, within: float = 60) -> None:
        """Wait until the group has committed everything these topics hold."""

        async def nothing_left() -> bool:
            for process in self.processes:
                assert process.popen.poll() in (None, 0, -signal.SIGKILL), process.tail()
            try:
                return await self.lag(*topics) == 0
            except KafkaException:
                return False  # a broker that has just come back knows no leader for a moment

        await eventually(nothing_left, within, f"lag of {topics} did not reach 0\n{self.tails()}", every=0.2)

    async def quiet(self, within: float = 30) -> None:
        """Wait until no entry is in progress or waits for a retry."""

        async def settled() -> bool:
            rows = await self.fetch("SELECT count(*) FROM oncebox.entries WHERE state IN (1, 3)")
            return int(rows[0][0]) == 0

        await eventually(settled, within, f"entries stay in progress\n{self.tails()}", every=0.2)

    def tails(self) -> str:
        return "\n".join(process.tail() for process in self.processes)

    def witness(self) -> list[dict[str, Any]]:
        """What handlers wrote down about themselves, in order."""
        file = self.folder / "witness"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def close(self) -> None:
        for process in self.processes:
            process.end()
        if "reader" in self.__dict__:
            self.reader.close()


@dataclass(frozen=True)
class Letter:
    """A dead letter: the original record, and what the worker says about it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    about: Mapping[str, bytes | None]

    @classmethod
    def of(cls, seen: Seen) -> "Letter":
        own = {name: value for name, value in seen.headers if name.startswith(("oncebox.", "__dlq."))}
        given = tuple(h for h in seen.headers if h[0] not in own)
        return cls(seen.key, seen.value, given, own)

    @property
    def reason(self) -> str:
        return (self.about["oncebox.reason"] or b"").decode()

    @property
    def offset(self) -> int:
        return int(self.about["__dlq.errors.offset"] or b"-1")


@dataclass
class Process:
    """A worker process that a test started."""

    popen: Forked
    log: Path

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    async def ended(self, within: float = 30) -> int:
        await eventually(lambda: self.popen.poll() is not None, within, f"still running\n{self.tail()}", every=0.05)
        return int(self.popen.poll() or 0)

    async def says(self, event: str, within: float = 30) -> None:
        """Wait for a log line with this event."""
        await eventually(
            lambda: f'"event": "{event}"' in self.log.read_text(), within, f"no {event}\n{self.tail()}", every=0.05
        )

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if f'"event": "{name}"' in line]
        return [json.loads(line) for line in lines]

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def end(self) -> None:
        self.popen.send_signal(signal.SIGCONT)
        self.popen.send_signal(signal.SIGKILL)
        eventually_sync(lambda: self.popen.poll() is not None, 10, f"process {self.popen.pid} did not end")
