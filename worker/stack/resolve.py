"""The order in which a service is looked for: the environment, Docker, a local process, and for Kafka, memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from worker.errors import ServiceUnavailable
from worker.stack import binaries, jars, redis
from worker.stack.containers import Engine
from worker.stack.kafka import Kafka
from worker.stack.memory import MemoryBroker
from worker.stack.postgres import Postgres
from worker.stack.redis import Redis
from worker.stack.server import LocalServer, Recipe
from worker.stack.service import Request, Service, named


@dataclass
class Running:
    """One chosen service. It is registered first and begun then, so that an interrupt in between loses nothing."""

    begin: Callable[[], None]
    ready: Callable[[], Service]
    ask_to_stop: Callable[[], None]
    end: Callable[[], None]
    server: LocalServer | None = None
    pid: Callable[[], int] | None = None
    environment: Mapping[str, str] | None = None
    listeners: Callable[[], Mapping[str, str]] = dict
    create_topics: Callable[[Mapping[str, int], bool], None] | None = None


def choose(name: str, request: Request, engine: Engine) -> Running | None:
    """The first kind that can serve; None only for Redis, which the stack does without."""
    if given := named(name, request.environment):
        variable, url = given
        return _given(Service(name, url, "environment", f"{variable} is set"))
    if name == "kafka" and request.kafka.own_broker:
        why = "its listeners and settings need a broker of our own"
    elif (why := engine.absence) == "":
        try:
            return _container(name, request, engine)
        except ServiceUnavailable as refused:
            why = refused.problem
    match name:
        case "kafka":
            return _kafka(request, why)
        case "postgres":
            return _local(Postgres(request, binaries.find(request)), request, why)
        case _:
            return _redis(request, why)


def _kafka(request: Request, why: str) -> Running:
    try:
        programs = jars.find(request)
    except ServiceUnavailable as missing:
        if request.kafka.own_broker or request.kafka.real:
            raise
        return _memory(request, f"{why}, and {missing.problem}")
    recipe = Kafka(request, programs)
    running = _local(recipe, request, why)
    running.listeners = lambda: recipe.listeners
    return running


def _redis(request: Request, why: str) -> Running | None:
    try:
        program = redis.find(request)
    except ServiceUnavailable as missing:
        request.say(f"redis: going without it, {missing.problem}")
        return None
    return _local(Redis(request, program), request, why)


def _given(service: Service) -> Running:
    return Running(begin=_nothing, ready=lambda: service, ask_to_stop=_nothing, end=_nothing)


def _container(name: str, request: Request, engine: Engine) -> Running:
    container = engine.start(name, request)
    service = Service(name, container.url, "docker", "a Docker engine answers")
    return Running(begin=_nothing, ready=lambda: service, ask_to_stop=_nothing, end=container.stop)


def _local(recipe: Recipe, request: Request, why: str) -> Running:
    server = LocalServer(recipe, request.data / f"{recipe.name}.log")

    def ready() -> Service:
        server.wait_ready(may_move=True)
        return Service(recipe.name, recipe.url, "local", why)

    def end() -> None:
        server.wait_gone()
        server.end()

    return Running(
        begin=server.spawn, ready=ready, ask_to_stop=server.ask_to_stop, end=end, server=server, pid=lambda: server.pid
    )


def _memory(request: Request, why: str) -> Running:
    broker = MemoryBroker(request)

    def ready() -> Service:
        broker.wait_ready()
        note = f"{why}: an in-memory broker for the demo only, it forgets everything when it ends"
        return Service("kafka", broker.url, "memory", note)

    return Running(
        begin=broker.spawn,
        ready=ready,
        ask_to_stop=_nothing,
        end=broker.end,
        environment=broker.environment,
        listeners=lambda: {"PLAINTEXT": broker.url},
        create_topics=broker.create_topics,
        pid=lambda: broker.pid,
    )


def _nothing() -> None:
    """The environment's services are not ours to begin or to end."""
