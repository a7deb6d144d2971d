"""Migrations: once, whoever asks and however often, in whatever schema; and every statement fits what they make."""

import asyncio

import asyncpg
import pytest

from tests.ledger.conftest import Notices, Schema, make_ledger
from tests.ledger.locks import holding, somebody_waits
from worker.errors import ConfigError
from worker.ledger import migrate as migrations_module
from worker.ledger.migrate import Migration, migrate, migrations, pending, refuse_stale_schema
from worker.ledger.queries import load_queries
from worker.settings import DatabaseSettings


def settings(url: str, schema: str, **options: str) -> DatabaseSettings:
    return DatabaseSettings(url=url, schema_name=schema, **options)


async def test_migrating_twice_applies_everything_once(database_url: str, schema: str) -> None:
    wanted = settings(database_url, schema)
    assert [step.number for step in await migrate(wanted)] == [step.number for step in migrations(schema)]
    assert await migrate(wanted) == []
    await refuse_stale_schema(wanted)


async def test_migrating_at_once_waits_and_applies_everything_once(database_url: str, schema: str) -> None:
    wanted = settings(database_url, schema)
    answers = await asyncio.gather(*(migrate(wanted) for _ in range(4)))
    assert sorted(len(applied) for applied in answers) == [0, 0, 0, len(migrations(schema))]


async def test_a_migration_waits_for_another_longer_than_a_statement_may_take(
    ledger_schema: Schema, schema: str
) -> None:
    lock = f"SELECT pg_advisory_lock({migrations_module._LOCK})"
    async with holding(ledger_schema.url, lock) as other:
        waiting = asyncio.create_task(migrate(settings(ledger_schema.url, schema, statement_timeout="100ms")))
        [pid] = await somebody_waits(ledger_schema.admin, other)
        # Past every limit of ordinary connections: the limits of this one are what counts.
        waited = "SELECT clock_timestamp() - query_start > interval '300ms' FROM pg_stat_activity WHERE pid = $1"
        while not await ledger_schema.value(waited, pid):
            await ledger_schema.execute("SELECT pg_sleep(0.05)")
        assert not waiting.done()
    assert await waiting == []


async def test_a_second_migration_does_not_touch_tables_in_use(ledger_schema: Schema, schema: str) -> None:
    reading = ledger_schema.sql("SELECT count(*) FROM oncebox.entries")
    async with holding(ledger_schema.url, reading):
        # A lock on the table would wait for the reader, and every claim behind it.
        assert await asyncio.wait_for(migrate(settings(ledger_schema.url, schema)), 5) == []


async def test_a_missing_migration_is_found_and_named(
    ledger_schema: Schema, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = settings(ledger_schema.url, schema)
    known = migrations(schema)
    newer = Migration(9999, "newer", f'CREATE TABLE "{schema}".newer (id int)')
    monkeypatch.setattr(migrations_module, "migrations", lambda _: [*known, newer])
    assert await pending(ledger_schema.admin, schema) == [newer]
    with pytest.raises(ConfigError, match="9999_newer"):
        await refuse_stale_schema(wanted)
    ledger = make_ledger(wanted, Notices())
    with pytest.raises(ConfigError, match="oncebox migrate"):
        await ledger.open()
    assert await migrate(wanted) == [newer]
    monkeypatch.undo()
    await refuse_stale_schema(wanted)


async def test_a_migration_that_fails_leaves_nothing(
    ledger_schema: Schema, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations(schema)
    broken = [
        Migration(9998, "first", f'CREATE TABLE "{schema}".first (id int)'),
        Migration(9999, "second", "SELECT nonsense"),
    ]
    monkeypatch.setattr(migrations_module, "migrations", lambda _: [*known, *broken])
    with pytest.raises(asyncpg.UndefinedColumnError):
        await migrate(settings(ledger_schema.url, schema))
    assert await ledger_schema.value("SELECT to_regclass($1)", f'"{schema}".first') is None
    assert await pending(ledger_schema.admin, schema) == broken


async def test_an_empty_database_has_everything_pending(database_url: str, schema: str) -> None:
    connection = await asyncpg.connect(database_url)
    assert await pending(connection, schema) == migrations(schema)
    await connection.close()
    with pytest.raises(ConfigError, match="oncebox migrate"):
        await refuse_stale_schema(settings(database_url, schema))


async def test_nothing_is_created_outside_the_schema(ledger_schema: Schema, schema: str) -> None:
    assert schema != "oncebox"
    assert await ledger_schema.value("SELECT to_regnamespace('oncebox')") is None


async def test_every_query_fits_the_schema(ledger_schema: Schema, schema: str) -> None:
    unfit = {}
    for name, text in load_queries(schema).items():
        try:
            await ledger_schema.admin.prepare(text)
        except asyncpg.PostgresError as error:
            unfit[name] = str(error)
    assert unfit == {}
    assert [name for name, text in load_queries(schema).items() if "oncebox." in text] == []


def test_every_query_says_what_it_does_and_what_its_parameters_are() -> None:
    for name, text in load_queries().items():
        comments = " ".join(line for line in text.splitlines() if line.startswith("--"))
        numbers = {part for part in "123456789" if f"${part}" in text.replace(comments, "")}
        assert [n for n in numbers if f"${n}" not in comments] == [], name


async def test_two_ledgers_in_one_database_know_nothing_of_each_other(ledger_schema: Schema, schema: str) -> None:
    second = f"{schema}_b"
    try:
        await migrate(settings(ledger_schema.url, second))
        ids = [await ledger_schema.admin.fetchval(f'SELECT id FROM "{name}".ledger') for name in (schema, second)]
        assert ids[0] != ids[1]
    finally:
        await ledger_schema.execute(f'DROP SCHEMA "{second}" CASCADE')
