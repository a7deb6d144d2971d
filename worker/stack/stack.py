"""The stack as one thing: started service by service, closed as a whole."""

import atexit
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from worker.errors import ConfigError
from worker.stack import folders, resolve, topics
from worker.stack.containers import Engine
from worker.stack.ports import check_named
from worker.stack.server import LocalServer
from worker.stack.service import VARIABLES, KafkaOptions, Request, Service


class Stack:
    """Services that answer; closing it ends those we started, and only those."""

    kafka: Service | None = None
    postgres: Service | None = None
    redis: Service | None = None

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._given = environment
        self._running: dict[str, resolve.Running] = {}
        self._owned: list[folders.Owned] = []
        atexit.register(self.close)

    @property
    def services(self) -> list[Service]:
        return [service for service in (self.kafka, self.postgres, self.redis) if service]

    @property
    def servers(self) -> list[LocalServer]:
        """The processes of our own, without the in-memory broker."""
        return [running.server for running in self._running.values() if running.server]

    def pids(self) -> dict[str, int]:
        """Every process we started, by service; what runs in Docker or elsewhere has none here."""
        return {name: running.pid() for name, running in self._running.items() if running.pid}

    def environment(self) -> dict[str, str]:
        """The variables a worker needs to use these services."""
        found = {VARIABLES[service.name]: service.url for service in self.services}
        for running in self._running.values():
            found.update(running.environment or {})
        return found

    @property
    def kafka_listeners(self) -> dict[str, str]:
        """The address of every listener of a local broker, by name; PLAINTEXT is always one of them."""
        running = self._running.get("kafka")
        return dict(running.listeners()) if running else {}

    def create_topics(
        self, wanted: Mapping[str, int], config: Mapping[str, str] | None = None, *, exist_ok: bool = False
    ) -> None:
        """Create topics with these partition counts, whatever kind of broker this is."""
        if self.kafka is None:
            raise ConfigError("this stack has no Kafka", advice="start it with names=('kafka', ...)")
        running = self._running.get("kafka")
        if running and running.create_topics:
            return running.create_topics(wanted, exist_ok)
        settings = topics.client_settings(self.kafka.url, self._given if self.kafka.how == "environment" else {})
        return topics.create(settings, wanted, config=config or {}, exist_ok=exist_ok)

    def server(self, name: str) -> LocalServer:
        """The process behind a service, to be hurt by a fault test; only for processes of our own."""
        running = self._running.get(name)
        if running is None or running.server is None:
            service = next((service for service in self.services if service.name == name), None)
            came = f"comes from {service.how}" if service else "is not part of this stack"
            raise ConfigError(f"{name} {came}, so it cannot be stopped from here", advice="use a local process for it")
        return running.server

    def close(self) -> None:
        """End what was started and remove what was temporary; a second call does nothing."""
        atexit.unregister(self.close)
        running, self._running = list(self._running.values()), {}
        owned, self._owned = self._owned, []
        try:
            for each in running:
                each.ask_to_stop()
        finally:
            for each in running:
                each.end()
            for folder in reversed(owned):
                folder.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start(
    names: Sequence[str] = ("kafka", "postgres", "redis"),
    *,
    say: Callable[[str], None],
    data: Path | None = None,
    environment: Mapping[str, str] | None = None,
    durable: bool = True,
    kafka_options: KafkaOptions | None = None,
    ports: Mapping[str, int] | None = None,
    postgres_settings: Mapping[str, str] | None = None,
) -> Stack:
    """Start these services and return when every one answers; a failure or Ctrl-C ends all that was begun.

    `data` is kept, otherwise everything is temporary. `durable=False` lets Postgres skip fsync.
    """
    _check(names, ports or {})
    given = dict(os.environ if environment is None else environment)
    stack = Stack(given)
    try:
        scratch = folders.temporary()
        stack._owned.append(scratch)
        if data is not None:
            stack._owned.append(folders.own(data.absolute()))
        request = Request(
            say=say,
            environment=given,
            scratch=scratch.path,
            data=stack._owned[-1].path,
            kept=data is not None,
            durable=durable,
            kafka=kafka_options or KafkaOptions(),
            ports=ports or {},
            postgres_settings=postgres_settings or {},
        )
        # Every process is spawned before any is waited for: they come up side by side, Kafka the longest.
        engine = Engine(given)
        for name in names:
            if found := resolve.choose(name, request, engine):
                stack._running[name] = found
                found.begin()
        for name, running in stack._running.items():
            service = running.ready()
            setattr(stack, name, service)
            say(f"{name}: {service.how}, {service.why}")
    except BaseException:
        stack.close()
        raise
    return stack


def _check(names: Sequence[str], named: Mapping[str, int]) -> None:
    for name in (*names, *named):
        if name not in VARIABLES:
            raise ConfigError(f"{name} is not a service", advice=f"use {', '.join(VARIABLES)}")
    for name, port in named.items():
        check_named(name, port)
