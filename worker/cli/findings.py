"""What `oncebox check` looks at, and what it makes of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from worker.errors import ConfigError, OnceboxError
from worker.rules.durations import format_duration
from worker.settings import Settings
from worker.settings.model import variable_form

if TYPE_CHECKING:
    from worker.rules.registry import Registry

_SHORT_RETENTION = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    state: Literal["ok", "warning", "failed", "skipped"]
    detail: str
    advice: str | None = None
    exit_code: int = 0


def failed(subject: str, error: OnceboxError) -> Finding:
    """The finding behind an error."""
    problem = str(getattr(error, "problem", error))
    return Finding(subject, "failed", problem, getattr(error, "advice", None), error.exit_code)


async def look_at_everything(settings: Settings, registry: "Registry | None") -> list[Finding]:
    """All findings, in the order in which a record meets the services."""
    groups = await asyncio.gather(
        _guarded("handlers", lambda: _handlers(settings, registry)),
        _guarded("kafka", lambda: _kafka(settings, registry)),
        _guarded("postgres", lambda: _postgres(settings)),
        _guarded("redis", lambda: _redis(settings)),
    )
    return [finding for group in groups for finding in group]


async def _guarded(subject: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    try:
        return await look()
    except OnceboxError as error:
        return [failed(subject, error)]


async def _handlers(settings: Settings, registry: "Registry | None") -> list[Finding]:
    if registry is None:
        return [Finding("handlers", "skipped", "no registry was named", "name one, or set ONCEBOX_HANDLERS")]
    settings.refuse_unknown_scopes(registry.scopes)
    private = {handler.scope.name for handler in registry.handlers if handler.scope.private_keys}
    for scope in sorted(private):
        if settings.scope(scope).secret is None:
            raise ConfigError(
                f"the scope {scope!r} keeps its keys private and has no secret",
                setting=f"scopes.{scope}.secret",
                advice=f"set ONCEBOX_SCOPE_{variable_form(scope)}_SECRET_FILE to a file with 16 characters or more",
            )
    names = ", ".join(sorted(handler.operation for handler in registry.handlers))
    return [Finding("handlers", "ok", names)]


async def _kafka(settings: Settings, registry: "Registry | None") -> list[Finding]:
    from worker.kafka.topics import Topics, open_topics

    async def topics_of(topics: Topics, known: "Registry") -> list[Finding]:
        sources = set(known.topics)
        results = {handler.result_topic for handler in known.handlers if handler.result_topic}
        letters = {settings.kafka.dead_letter_prefix + topic for topic in sources}
        counts = await topics.partitions(sources | results | letters)
        config = await topics.config(set(counts))
        found = [_needed(name, counts, settings) for name in sorted(sources | results)]
        found += [_letters(name, counts, settings) for name in sorted(letters)]
        for name in sorted(sources & set(config)):
            found += _retention(name, config[name])
        return found

    async with open_topics(settings.kafka) as topics:
        brokers = await topics.brokers()
        first = Finding("kafka", "ok", f"{len(brokers)} broker(s): {', '.join(brokers)}")
        return [first, *(await topics_of(topics, registry) if registry is not None else [])]


def _needed(name: str, counts: dict[str, int], settings: Settings) -> Finding:
    if name in counts:
        return Finding(f"topic {name}", "ok", f"{counts[name]} partition(s)")
    return Finding(f"topic {name}", "failed", "does not exist", _create(name, 6, settings), ConfigError.exit_code)


def _letters(name: str, counts: dict[str, int], settings: Settings) -> Finding:
    if name in counts:
        return Finding(f"topic {name}", "ok", f"{counts[name]} partition(s)")
    source = counts.get(name.removeprefix(settings.kafka.dead_letter_prefix), 1)
    detail = "does not exist: dead letters would be parked in Postgres"
    return Finding(f"topic {name}", "warning", detail, _create(name, source, settings))


def _create(name: str, partitions: int, settings: Settings) -> str:
    broker = settings.kafka.bootstrap_servers[0]
    return f"kafka-topics.sh --bootstrap-server {broker} --create --topic {name} --partitions {partitions}"


def _retention(name: str, config: dict[str, str]) -> list[Finding]:
    subject = f"retention of {name}"
    if "compact" in config.get("cleanup.policy", ""):
        detail = "compaction can remove a record before it is read"
        return [Finding(subject, "warning", detail, "set the topic's cleanup.policy to delete")]
    millis = int(config.get("retention.ms") or -1)
    kept = timedelta(milliseconds=millis)
    if millis >= 0 and kept < _SHORT_RETENTION:
        detail = f"{format_duration(kept)}: an outage longer than that loses records"
        return [Finding(subject, "warning", detail, "raise the topic's retention.ms")]
    return []


async def _postgres(settings: Settings) -> list[Finding]:
    from worker.ledger.probe import look

    server = await look(settings.database)
    found = [Finding("postgres", "ok", f"version {server.version}")]
    if server.undurable:
        detail = f"{', '.join(server.undurable)}: a crash of the server can lose claims, and handlers then run twice"
        found.append(Finding("durability", "warning", detail, "turn them on wherever an effect matters"))
    else:
        found.append(Finding("durability", "ok", "fsync, full_page_writes and synchronous_commit are on"))
    schema = settings.database.schema_name
    if server.pending:
        detail = f"{schema} lacks {', '.join(server.pending)}"
        found.append(Finding("schema", "failed", detail, "run `oncebox migrate`", ConfigError.exit_code))
    else:
        found.append(Finding("schema", "ok", f"{schema} is up to date"))
    mine = settings.database.hot_connections + settings.database.transaction_connections
    if mine > server.max_connections // 2:
        detail = f"one worker may use {mine} of {server.max_connections}"
        advice = "lower ONCEBOX_TRANSACTION_CONNECTIONS, or raise the server's max_connections"
        found.append(Finding("connections", "warning", detail, advice))
    return found


async def _redis(settings: Settings) -> list[Finding]:
    if settings.redis.url is None:
        return [Finding("redis", "skipped", "REDIS_URL is not set: every duplicate is answered by Postgres")]
    from worker.filter.probe import ping

    took = await ping(settings.redis)
    shown = f"answers in {took.total_seconds() * 1000:.1f} ms"
    if took > settings.redis.timeout:
        advice = "raise ONCEBOX_REDIS_TIMEOUT, or leave Redis out"
        return [Finding("redis", "warning", f"{shown}, longer than ONCEBOX_REDIS_TIMEOUT", advice)]
    return [Finding("redis", "ok", shown)]
