"""Where the demo plays: a stack of its own that ends with it, or the detached one that stays."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from worker.demo.messages import PARTITIONS, TOPICS, topic_of
from worker.stack import Service, folders, start, topics
from worker.stack.detached import Detached

Say = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """Services that answer, a folder for books and logs, and the environment of workers that use them."""

    run: str
    services: Sequence[Service]
    folder: Path
    environment: Mapping[str, str]

    @property
    def kafka_settings(self) -> dict[str, str]:
        """For a client that is not the workers' own: the sender and the auditor."""
        settings = topics.client_settings(self.environment["KAFKA_BOOTSTRAP_SERVERS"], self.environment)
        # Only emergencies: that a broker went away at the end is no news.
        return {**settings, "log_level": "0"}


@contextmanager
def temporary(say: Say) -> Iterator[Stage]:
    """A stack that ends with this process, however this process ends."""
    run = _name()
    with start(say=say) as stack:
        folder = folders.temporary()
        try:
            environment = _environment(run, stack.services, stack.environment(), folder.path)
            stage = Stage(run, stack.services, folder.path, environment)
            stack.create_topics(_wanted(run))
            try:
                yield stage
            finally:
                _tidy(stage)
        finally:
            folder.release()


@contextmanager
def kept(say: Say) -> Iterator[Stage]:
    """The stack of `oncebox stack up`, which `oncebox stack down` ends; taken down here only by an interrupt."""
    run = _name()
    detached = Detached(os.environ)
    was_running = detached.find() is not None
    running = detached.up(say=say, ports={}, fresh=False)
    try:
        folder = detached.folder / "data" / run
        folder.mkdir(mode=0o700)
        environment = _environment(run, running.services, running.environment, folder)
        stage = Stage(run, running.services, folder, environment)
        _create_topics(stage)
        yield stage
    except (KeyboardInterrupt, SystemExit):
        if not was_running:
            detached.down()
        raise


def _name() -> str:
    return f"demo-{secrets.token_hex(3)}"


def _wanted(run: str) -> dict[str, int]:
    sources = [topic_of(run, operation) for operation in TOPICS]
    return {name: PARTITIONS for source in sources for name in (source, f"dlq.{source}")}


def _create_topics(stage: Stage) -> None:
    if _how(stage.services, "kafka") == "memory":
        # Its control channel is with the supervisor; asking about a topic creates it, with 4 partitions.
        for name in _wanted(stage.run):
            AdminClient(stage.kafka_settings).list_topics(name, timeout=10)
    else:
        topics.create(stage.kafka_settings, _wanted(stage.run), config={}, exist_ok=False)


def _tidy(stage: Stage) -> None:
    """A Kafka that is not ours gets its topics removed, if it lets us."""
    if _how(stage.services, "kafka") == "environment":
        # In a variable until the answers are here: a collected client cancels its own requests.
        admin = AdminClient(stage.kafka_settings)
        for answer in admin.delete_topics(list(_wanted(stage.run)), operation_timeout=5).values():
            answer.exception(10)


def _how(services: Sequence[Service], name: str) -> str:
    return next((service.how for service in services if service.name == name), "absent")


def _environment(run: str, services: Sequence[Service], found: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of a worker: the caller's, without settings that were meant for other workers."""
    foreign_kafka = _how(services, "kafka") == "environment"
    dropped = ("ONCEBOX_",) if foreign_kafka else ("ONCEBOX_", "KAFKA_")
    given = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    foreign_database = _how(services, "postgres") == "environment"
    source = str(Path(__file__).parents[2])
    path = given.get("PYTHONPATH")
    return {
        **given,
        "PYTHONPATH": f"{source}{os.pathsep}{path}" if path else source,
        "ONCEBOX_DEMO_RUN": run,
        "ONCEBOX_DEMO_FOLDER": str(folder),
        "ONCEBOX_SCHEMA": os.environ.get("ONCEBOX_SCHEMA") or ("oncebox_demo" if foreign_database else "oncebox"),
        "ONCEBOX_GROUP": run,
        "ONCEBOX_LEASE": "3s",
        "ONCEBOX_SETTLE_EVERY": "1s",
        # A killed worker leaves at most this many entries in doubt.
        "ONCEBOX_IN_FLIGHT": "16",
        "ONCEBOX_TRANSACTION_CONNECTIONS": "8",
        # A broker that is not ours refuses less than its group.min.session.timeout.ms, 6 s by default.
        "ONCEBOX_SESSION_TIMEOUT": "6s" if foreign_kafka else "3s",
        "ONCEBOX_DRAIN": "10s",
        "ONCEBOX_HTTP_PORT": "off",
        "ONCEBOX_LOG_FORMAT": "json",
        **found,
    }
