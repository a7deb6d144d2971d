"""Bringing the schema up to date: numbered files, forward only, all that are missing in one transaction."""

from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from worker.errors import ConfigError
from worker.ledger.connect import BROKEN, Connection, connector, unavailable
from worker.ledger.explain import explain_database_error
from worker.ledger.queries import in_schema
from worker.settings import DatabaseSettings

_LOCK = 7_305_808_869_232_650


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step."""

    number: int
    name: str
    text: str


def migrations(schema: str) -> list[Migration]:
    """All steps in order."""
    found = []
    for file in files("worker.ledger").joinpath("sql", "migrations").iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        if file.name.endswith(".sql"):
            found.append(Migration(int(number), name, in_schema(file.read_text(), schema)))
    return sorted(found, key=lambda m: m.number)


async def migrate(settings: DatabaseSettings) -> list[Migration]:
    """Apply what is missing and return it; two at once wait for each other."""
    connection = await _open(settings)
    try:
        return await _apply(connection, settings.schema_name)
    except BROKEN as error:
        raise unavailable(error) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigError(
            f"the database user may not create the schema: {error}",
            advice=f"grant it CREATE on the database, or create the schema {settings.schema_name!r} as its owner first",
        ) from error
    finally:
        await _close(connection)


async def pending(connection: Connection, schema: str) -> list[Migration]:
    """What `migrate` would apply."""
    exists = await connection.fetchval("SELECT to_regclass($1)", f'"{schema}".migrations')
    done: set[int] = set()
    if exists is not None:
        done = {r[0] for r in await connection.fetch(in_schema("SELECT number FROM oncebox.migrations", schema))}
    return [m for m in migrations(schema) if m.number not in done]


async def refuse_stale_schema(settings: DatabaseSettings) -> None:
    """Raise with the next step when the schema is not the one this version needs."""
    connection = await _open(settings)
    try:
        missing = await pending(connection, settings.schema_name)
    except Exception as error:
        raise explain_database_error(error, settings.url.get_secret_value()) from error
    finally:
        await _close(connection)
    if missing:
        raise ConfigError(
            f"the ledger in schema {settings.schema_name!r} lacks {len(missing)} migration(s), from"
            f" {missing[0].number:04d}_{missing[0].name}",
            advice="run `oncebox migrate` with a user that may create tables",
        )


async def _open(settings: DatabaseSettings) -> Connection:
    try:
        return await connector(settings, role="migrate", limit=0)()
    except Exception as error:
        raise explain_database_error(error, settings.url.get_secret_value()) from error


async def _close(connection: Connection) -> None:
    with suppress(*BROKEN):
        await connection.close(timeout=2)


async def _apply(connection: Connection, schema: str) -> list[Migration]:
    async with connection.transaction():
        # As long as it takes: another migration is under way. Nothing is locked meanwhile.
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        # But a lock on a table that workers use is soon given up: they would all wait behind us.
        await connection.execute("SELECT set_config('lock_timeout', '5s', true)")
        if await connection.fetchval("SELECT to_regnamespace($1)", f'"{schema}"') is None:
            await connection.execute(f'CREATE SCHEMA "{schema}"')
        await connection.execute(
            in_schema(
                "CREATE TABLE IF NOT EXISTS oncebox.migrations (number int PRIMARY KEY, name text NOT NULL,"
                " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
                schema,
            )
        )
        applied = await pending(connection, schema)
        for step in applied:
            await connection.execute(step.text)
            await connection.execute(
                in_schema("INSERT INTO oncebox.migrations (number, name) VALUES ($1, $2)", schema),
                step.number,
                step.name,
            )
        if any(step.number == 1 for step in applied):
            await _compress(connection, schema)
    return applied


async def _compress(connection: Connection, schema: str) -> None:
    """Results take a third less CPU with lz4; a server built without it keeps pglz."""
    with suppress(asyncpg.FeatureNotSupportedError, asyncpg.InvalidParameterValueError):
        async with connection.transaction():
            await connection.execute(in_schema("ALTER TABLE oncebox.entries ALTER result SET COMPRESSION lz4", schema))
