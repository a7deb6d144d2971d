"""The handlers of a process as its settings want them, and what they need before anything is opened."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from worker.errors import ConfigError
from worker.kafka.topics import open_topics
from worker.rules.handlers import Handler
from worker.rules.registry import Registry
from worker.settings import Settings


def effective_handlers(settings: Settings, registry: Registry) -> list[Handler]:
    """The registered handlers with the settings of their scopes."""
    if not registry.handlers:
        raise ConfigError("the registry has no handlers", advice="decorate a function with @registry.handler(…)")
    settings.refuse_unknown_scopes(registry.scopes)
    handlers = []
    for handler in registry.handlers:
        found = settings.scope(handler.scope.name)
        scope = dataclasses.replace(
            handler.scope, ttl=found.ttl or handler.scope.ttl, audit_ttl=found.audit_ttl or handler.scope.audit_ttl
        )
        handlers.append(dataclasses.replace(handler, scope=scope))
    return handlers


def scope_secrets(settings: Settings, handlers: Sequence[Handler]) -> Mapping[str, bytes]:
    """Secrets of scopes with private keys."""
    found = {h.scope.name: settings.scope(h.scope.name).secret for h in handlers}
    return {name: secret.get_secret_value().encode() for name, secret in found.items() if secret is not None}


async def refuse_missing_topics(settings: Settings, handlers: Sequence[Handler]) -> None:
    """A missing topic would hold the client's start for a whole request timeout, and then say little."""
    topics = {topic for handler in handlers for topic in handler.topics}
    async with open_topics(settings.kafka) as admin:
        missing = await admin.missing(topics)
    if missing:
        raise ConfigError(
            f"Kafka has no topic {', '.join(missing)}",
            advice="create it with the number of partitions you want, or correct the handler's topic",
        )


@contextlib.asynccontextmanager
async def shared_resources(registry: Registry) -> AsyncIterator[Any]:
    """What the registry's lifespans opened: the one value, or the merged mappings of several."""
    async with contextlib.AsyncExitStack() as opened:
        found = [
            await opened.enter_async_context(contextlib.asynccontextmanager(lifespan)())
            for lifespan in registry.lifespans
        ]
        if len(found) <= 1:
            yield found[0] if found else None
        else:
            yield {name: value for each in found for name, value in dict(each).items()}
