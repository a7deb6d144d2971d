"""The same services from a Docker engine, in pinned images; testcontainers' reaper removes them if we are killed."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from worker.errors import ServiceUnavailable
from worker.stack import ports, topics
from worker.stack.kafka import FIXED
from worker.stack.server import NotReady
from worker.stack.service import Request

IMAGES: Mapping[str, str] = {
    "kafka": "apache/kafka:4.3.1",
    "postgres": "postgres:18.4-alpine",
    "redis": "redis:7.2-alpine",
}
_READY_SECONDS = 90


@dataclass(frozen=True)
class Container:
    url: str
    stop: Callable[[], None]


class Engine:
    """A Docker engine, asked at most once whether it is there."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    @cached_property
    def absence(self) -> str:
        """Why there is no engine; empty when one answers."""
        try:
            import docker
            import testcontainers  # noqa: F401
        except ImportError:
            return "the Docker packages are not installed"
        try:
            docker.from_env(timeout=3, environment=dict(self._environment)).ping()
        except docker.errors.DockerException:
            return "no Docker engine answers"
        return ""

    def start(self, name: str, request: Request) -> Container:
        """Start one service and wait for it; ServiceUnavailable when the engine cannot, so that others may."""
        import docker
        import requests

        request.say(f"{name}: starting {IMAGES[name]} in Docker")
        begin = {"kafka": _kafka, "postgres": _postgres, "redis": _redis}[name]
        made: list[Any] = []
        try:
            return begin(request, made)
        except (docker.errors.DockerException, requests.RequestException, TimeoutError, NotReady, OSError) as error:
            _remove(made)
            raise ServiceUnavailable(name, f"Docker could not start {IMAGES[name]}: {str(error)[:200]}") from error
        except BaseException:
            _remove(made)
            raise


def _kafka(request: Request, made: list[Any]) -> Container:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.docker_client import DockerClient

    # The address a broker advertises is part of its settings, so host and port are known before it starts.
    port = request.ports.get("kafka") or ports.free_port()
    url = f"{DockerClient().host()}:{port}"
    settings = {
        **FIXED,
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,INSIDE://:9094",
        "advertised.listeners": f"PLAINTEXT://{url},INSIDE://localhost:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    container = DockerContainer(IMAGES["kafka"]).with_bind_ports(9092, port)
    for name, value in settings.items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    made.append(container)
    container.start()
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            topics.cluster_id({"bootstrap.servers": url})
            return Container(url, container.stop)
        except NotReady:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _postgres(request: Request, made: list[Any]) -> Container:
    from testcontainers.community.postgres import PostgresContainer

    container = PostgresContainer(
        IMAGES["postgres"], username="oncebox", password=os.urandom(16).hex(), dbname="postgres", driver=None
    )
    if port := request.ports.get("postgres"):
        container.with_bind_ports(5432, port)
    made.append(container)
    container.start()
    return Container(container.get_connection_url(), container.stop)


def _redis(request: Request, made: list[Any]) -> Container:
    from testcontainers.community.redis import RedisContainer

    password = os.urandom(16).hex()
    container = RedisContainer(IMAGES["redis"], password=password)
    if port := request.ports.get("redis"):
        container.with_bind_ports(6379, port)
    made.append(container)
    container.start()
    address = f"{container.get_container_host_ip()}:{container.get_exposed_port(6379)}"
    return Container(f"redis://:{password}@{address}/0", container.stop)


def _remove(made: list[Any]) -> None:
    for container in made:
        # A container that never came to be has nothing to stop, and testcontainers accepts that.
        container.stop()
