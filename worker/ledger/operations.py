"""Operations and topics by number, and the refusal of starts that would silently change what a key means."""

from collections.abc import Mapping, Sequence

import asyncpg

from worker.errors import ConfigError
from worker.ledger.connect import Connection, Line
from worker.rules.durations import duration
from worker.rules.handlers import Handler


async def register(
    line: Line, queries: Mapping[str, str], handlers: Sequence[Handler], *, group: str, identities: Mapping[str, str]
) -> dict[str, int]:
    """Numbers of the handlers' operations, by handler name; `identities` says how each one's keys are computed.

    Refused, and then nothing is changed: another identity for an operation with live entries (its duplicates would no
    longer be recognised), and dropping an operation that this group registered and that still has live entries.
    """
    async with line.transaction() as tx:
        known = {f"{r['scope']}/{r['operation']}": r for r in await tx.fetch(queries["known_operations"])}
        for handler in handlers:
            await _refuse_other_identity(tx, queries, known.get(handler.name), handler, identities[handler.name])
        names = {h.name for h in handlers}
        for name, row in known.items():
            if name not in names and group in row["groups"]:
                await _leave(tx, queries, name, row, group)
        numbers: dict[str, int] = {}
        # In one order, whatever the registry's: workers that start together must not lock each other out.
        for handler in sorted(handlers, key=lambda h: h.name):
            numbers[handler.name] = await tx.fetchval(
                queries["register_operation"],
                handler.scope.name,
                handler.operation,
                handler.kind,
                identities[handler.name],
                handler.scope.lifetime.total_seconds(),
                (handler.timeout + handler.effect_horizon).total_seconds(),
                group,
                None if handler.scope.audit_ttl is None else duration(handler.scope.audit_ttl).total_seconds(),
                handler.scope.results,
            )
        return numbers


async def _refuse_other_identity(
    tx: Connection, queries: Mapping[str, str], row: asyncpg.Record | None, handler: Handler, identity: str
) -> None:
    if row is None or row["identity"] == identity:
        return
    if await tx.fetchval(queries["has_live_entries"], row["id"]):
        raise ConfigError(
            f"{handler.name} computes its keys in another way than its stored entries:"
            f" {identity!r} instead of {row['identity']!r}",
            advice="redeliveries of what was done would run again; keep the old rule, or register the new one under"
            " another operation=… and let the old entries expire",
        )


async def _leave(tx: Connection, queries: Mapping[str, str], name: str, row: asyncpg.Record, group: str) -> None:
    if await tx.fetchval(queries["has_live_entries"], row["id"]):
        raise ConfigError(
            f"group {group!r} ran {name}, which still has entries, but no handler of that name is registered",
            advice="register it again (its name is its scope and operation=…), or run the rest under another"
            " ONCEBOX_GROUP",
        )
    await tx.execute(queries["leave_operation"], row["id"], group)


async def register_topics(line: Line, queries: Mapping[str, str], topics: Sequence[str]) -> dict[str, int]:
    """Numbers of topics, by name."""
    return {topic: await line.fetchval(queries["register_topic"], topic) for topic in sorted(topics)}
