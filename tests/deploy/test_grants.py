"""deploy/grants.sql: enough to work, and no more."""

import re

import asyncpg
import pytest

from tests.deploy.people import GRANTS, People, apply_grants
from tests.engine.site import Site
from tests.waiting import eventually
from worker import Registry, Reject, Transaction
from worker.ledger.audit import Act, write_audit
from worker.ledger.connect import Connection
from worker.ledger.desk import open_desk
from worker.ledger.queries import load_queries

ONLY_OPERATORS = {"audit": "INSERT INTO", "pauses": "INSERT INTO|DELETE FROM", "skips": "INSERT INTO"}
ONLY_OPERATORS |= dict.fromkeys(("jobs", "job_spans", "handled_letters"), "INTO|UPDATE|FROM")
"""How a worker must not be able to touch orders, their audit, and jobs."""


async def complaint(connection: Connection, query: str) -> str:
    """Why Postgres would not run a statement: its privileges are checked when a plan is made, nothing is executed."""
    statement = await connection.prepare(query)
    arguments = ", ".join(["NULL"] * len(statement.get_parameters()))
    try:
        await connection.execute(f'EXPLAIN EXECUTE "{statement.get_name()}"' + (f"({arguments})" if arguments else ""))
    except asyncpg.InsufficientPrivilegeError as error:
        return str(error)
    return ""


async def test_a_worker_runs_with_what_a_worker_is_granted(people: People) -> None:
    site = people.site
    topic = site.topic(2)
    await site.fetch("CREATE TABLE oncebox.made (id text)")
    await site.fetch(f"GRANT INSERT ON oncebox.made TO {people.user('worker')}")
    registry = Registry()

    @registry.handler(topic, scope="jobs", key="id", kind="transactional")
    async def make(message: dict[str, str], transaction: Transaction) -> str:
        if message["id"] == "bad":
            raise Reject("no", code="no")
        if message["id"] == "broken":
            raise ValueError("every time")
        await transaction.execute(f'INSERT INTO "{site.schema}".made VALUES ($1)', message["id"])
        return "made"

    values = [b'{"id":"%d"}' % (n % 20) for n in range(40)] + [b'{"id":"bad"}', b'{"id":"broken"}', b"{}"]
    site.produce(topic, values)
    database = {"DATABASE_URL": people.url("worker"), "ONCEBOX_HOLD": "100ms"}
    async with site.worker(registry, **database):
        await site.drained(topic)
        await eventually(lambda: _only_one_parked(site), 30, "what waited for a key is still parked")
    assert len(await site.fetch("SELECT id FROM oncebox.made")) == 20
    states = await site.states()
    assert states["bad"] == "completed"
    assert states["broken"] == "failed_retryable"
    assert [letter.reason for letter in site.dead_letters(topic)] == ["missing_key"]


async def _only_one_parked(site: Site) -> bool:
    return await site.count("parked") == 1


async def test_every_named_query_is_allowed_to_an_operator_and_but_for_orders_to_a_worker(people: People) -> None:
    queries = load_queries(people.site.schema)
    async with people.connection("operator") as operator, people.connection("worker") as worker:
        for name, query in queries.items():
            assert await complaint(operator, query) == "", (
                f"{name}: give the operator what it needs in deploy/grants.sql"
            )
            refused = await complaint(worker, query)
            touched = any(re.search(rf'({how}) "\w+"\.{table}\b', query) for table, how in ONLY_OPERATORS.items())
            assert bool(refused) == touched, f"{name}: {refused or 'allowed to a worker'}; see deploy/grants.sql"


async def test_a_query_without_a_grant_would_be_noticed(people: People) -> None:
    await people.site.fetch(f"REVOKE DELETE ON oncebox.open_claims FROM {people.site.schema}_worker")
    async with people.connection("worker") as worker:
        query = load_queries(people.site.schema)["forget_open_claims"]
        assert await complaint(worker, query) == "permission denied for table open_claims"


async def test_an_operator_acts_and_is_audited(people: People) -> None:
    settings = people.site.settings(DATABASE_URL=people.url("operator"))
    async with open_desk(settings.database) as desk, desk.line.transaction() as connection:
        await write_audit(connection, desk.queries, Act("ann", "skip", "t/0/1", "broken"))
    assert [row["actor"] for row in await people.site.fetch("SELECT actor FROM oncebox.audit")] == ["ann"]


@pytest.mark.parametrize("role", ["worker", "reader"])
async def test_nobody_else_writes_what_operators_did(people: People, role: str) -> None:
    columns = "(actor, action, subject, reason) VALUES ('ann', 'a', 's', 'r')"
    async with people.connection(role) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f'INSERT INTO "{people.site.schema}".audit {columns}')
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f"UPDATE \"{people.site.schema}\".audit SET actor = 'bob'")


@pytest.mark.parametrize("role", ["worker", "operator", "reader"])
async def test_nobody_changes_the_schema(people: People, role: str) -> None:
    statements = [
        "CREATE TABLE oncebox.mine (id int)",
        "ALTER TABLE oncebox.entries ADD COLUMN mine int",
        "DROP TABLE oncebox.entries",
        "TRUNCATE oncebox.entries",
        "CREATE INDEX mine ON oncebox.entries (fence)",
        "SELECT setval('oncebox.fences', 1)",
        "INSERT INTO oncebox.migrations (number, name) VALUES (9999, 'mine')",
        "UPDATE oncebox.ledger SET filter_key = ''",
    ]
    async with people.connection(role) as connection:
        for statement in statements:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement.replace("oncebox.", f'"{people.site.schema}".'))


async def relations(site: Site) -> list[str]:
    rows = await site.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'v')",
        site.schema,
    )
    return [row["relname"] for row in rows]


async def test_a_reader_changes_nothing_and_sees_no_payload_and_no_secret(people: People) -> None:
    schema = people.site.schema
    async with people.connection("reader") as reader:
        for table in await relations(people.site):
            for privilege in ("INSERT", "UPDATE", "DELETE"):
                query = f"SELECT has_any_column_privilege('{schema}.{table}', '{privilege}')"
                if privilege == "DELETE":
                    query = query.replace("any_column", "table")
                assert not await reader.fetchval(query), (table, privilege)
        assert await reader.fetch(f'SELECT key, state FROM "{schema}".readable_entries') == []
        assert await reader.fetch(f'SELECT id, state, fence FROM "{schema}".entries') == []
        for secret in ("filter_key FROM oncebox.ledger", "result FROM oncebox.entries", "value FROM oncebox.parked"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await reader.fetch(f"SELECT {secret.replace('oncebox.', schema + '.')}")


async def test_a_table_without_a_line_is_refused_by_name(site: Site) -> None:
    """A migration that adds a table has to say who may use it."""
    for table in await relations(site):
        assert re.search(rf"^ +\('{table}', ", GRANTS, flags=re.MULTILINE), f"deploy/grants.sql has no line for {table}"
    await site.fetch("CREATE TABLE oncebox.novelties (id int)")
    with pytest.raises(asyncpg.RaiseError, match="no line for novelties"):
        await apply_grants(site)


async def test_granting_again_takes_back_what_is_no_longer_granted(people: People) -> None:
    schema = people.site.schema
    await people.site.fetch(f"GRANT TRUNCATE, INSERT ON oncebox.ledger TO {schema}_worker")
    await apply_grants(people.site)
    rows = await people.site.fetch(
        "SELECT privilege_type FROM information_schema.table_privileges"
        " WHERE table_schema = $1 AND table_name = 'ledger' AND grantee = $1 || '_worker'",
        schema,
    )
    assert [row["privilege_type"] for row in rows] == ["SELECT"]


async def test_a_schema_that_is_not_there_is_named(site: Site) -> None:
    connection = await asyncpg.connect(site.database_url, server_settings={"oncebox.schema": "nowhere"})
    try:
        with pytest.raises(asyncpg.RaiseError, match="there is no schema nowhere"):
            await connection.execute(GRANTS)
    finally:
        await connection.close()
