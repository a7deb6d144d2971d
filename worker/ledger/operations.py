"""Operations and topics by number, and the refusal of starts that would silently change what a key means."""

from collections.abc import Mapping, Sequence

from worker.errors import ConfigError
from worker.ledger.connect import Line
from worker.rules.handlers import Handler


async def register(
    line: Line, queries: Mapping[str, str], handlers: Sequence[Handler], *, group: str, identities: Mapping[str, str]
) -> dict[str, int]:
    """Numbers of the handlers' operations, by handler name; `identities` says how each one's keys are computed.

    Refused: another identity for an operation with live entries (its duplicates would no longer be recognised), and
    dropping an operation that this group registered and that still has live entries.
    """
    known = {f"{r['scope']}/{r['operation']}": r for r in await line.fetch(queries["known_operations"])}
    names = {h.name for h in handlers}
    for handler in handlers:
        row = known.get(handler.name)
        if row is None or row["identity"] == identities[handler.name]:
            continue
        if await line.fetchval(queries["has_live_entries"], row["id"]):
            raise ConfigError(
                f"{handler.name} computes its keys in another way than its stored entries:"
                f" {identities[handler.name]!r} instead of {row['identity']!r}",
                advice="redeliveries of what was done would run again; keep the old rule, or register the new one under"
                " another operation=… and let the old entries expire",
            )
    for name, row in known.items():
        if name in names or group not in row["groups"]:
            continue
        if await line.fetchval(queries["has_live_entries"], row["id"]):
            raise ConfigError(
                f"group {group!r} ran {name}, which still has entries, but no handler of that name is registered",
                advice="register it again (its name is its scope and operation=…), or run the rest under another ONCEBOX_GROUP",
            )
        await line.fetch(queries["leave_operation"], row["id"], group)
    return {
        handler.name: await line.fetchval(
            queries["register_operation"],
            handler.scope.name,
            handler.operation,
            handler.kind,
            identities[handler.name],
            handler.scope.lifetime.total_seconds(),
            (handler.timeout + handler.effect_horizon).total_seconds(),
            group,
        )
        for handler in handlers
    }


async def register_topics(line: Line, queries: Mapping[str, str], topics: Sequence[str]) -> dict[str, int]:
    """Numbers of topics, by name."""
    return {topic: await line.fetchval(queries["register_topic"], topic) for topic in sorted(topics)}
