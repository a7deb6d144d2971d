"""Errors that say nothing about the outcome are repeated; everything else is raised."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.ledger.conftest import Notices, OpenLedger, Schema
from tests.ledger.locks import holding, somebody_waits
from tests.ledger.offers import done, failed, id_of, offers
from tests.ledger.wire import Wire
from tests.waiting import eventually
from worker.errors import ServiceUnavailable
from worker.ledger.connect import BROKEN, Line, Lines, connector
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import State
from worker.settings import DatabaseSettings

CODES = {
    "40001": "serialization failure",
    "40P01": "deadlock",
    "57P01": "shutdown by an administrator",
    "57P02": "crash",
    "57P03": "cannot connect now",
    "57014": "statement timeout",
    "08006": "connection failure",
    "53300": "too many connections",
    "53100": "disk full",
    "55P03": "lock timeout",
    "25006": "read-only",
    "25P03": "idle in transaction",
    "58030": "input or output",
    "XX000": "internal",
}


async def raise_once(schema: Schema, code: str) -> None:
    """Let the next write to an entry fail with this code, once; a sequence remembers it through the rollback."""
    await schema.execute("CREATE SEQUENCE oncebox.failures")
    await schema.execute(
        f"""CREATE FUNCTION oncebox.fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('oncebox.failures') = 1 THEN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{code}'; END IF;
            RETURN NEW; END $$"""
    )
    await schema.execute(
        "CREATE TRIGGER fail_once BEFORE INSERT OR UPDATE ON oncebox.entries"
        " FOR EACH STATEMENT EXECUTE FUNCTION oncebox.fail_once()"
    )


@pytest.mark.parametrize("code", CODES, ids=CODES.values())
async def test_an_error_of_the_server_that_may_pass_is_repeated(
    ledger: PostgresLedger, ledger_schema: Schema, notices: Notices, code: str
) -> None:
    await raise_once(ledger_schema, code)
    claimed = await ledger.claims.claim(offers("k"))
    assert len(notices.of("claim_broke")) == 1
    await ledger_schema.execute("ALTER SEQUENCE oncebox.failures RESTART")
    won = claimed.winner(id_of("k"))
    assert won is not None
    assert await ledger.finals.complete([done("k", won.fence)]) == set()
    assert len(notices.of("final_write_broke")) == 1


async def test_an_error_that_will_not_pass_is_raised(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    await raise_once(ledger_schema, "23514")
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.claims.claim(offers("k"))
    assert (await ledger.claims.claim(offers("k"))).winner(id_of("k")) is not None


async def test_a_real_deadlock_is_repeated(ledger: PostgresLedger, ledger_schema: Schema, notices: Notices) -> None:
    claimed = await ledger.claims.claim(offers("a", "b"))
    first, last = sorted(("a", "b"), key=id_of)
    lock = ledger_schema.sql("SELECT 1 FROM oncebox.entries WHERE id = encode($1::bytea, 'hex')::uuid FOR UPDATE")
    async with holding(ledger_schema.url, lock, id_of(last)) as stranger:
        completing = asyncio.create_task(
            ledger.finals.complete([done(first, claimed.fence), done(last, claimed.fence)])
        )
        await somebody_waits(ledger_schema.admin, stranger)
        # Ours has waited longer, so that its check for deadlocks comes first.
        await stranger.execute("SET deadlock_timeout = '30s'")
        await stranger.fetch(lock, id_of(first))
        await stranger.execute("ROLLBACK")
        assert await completing == set()
    assert "DeadlockDetected" in notices.of("final_write_broke")[0]["error"]


async def test_a_lock_that_is_held_too_long_is_asked_for_again(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices
) -> None:
    ledger = await open_ledger(limits={"statement_timeout": "150ms"})
    claimed = await ledger.claims.claim(offers("k"))
    lock = ledger_schema.sql("SELECT 1 FROM oncebox.entries FOR UPDATE")
    async with holding(ledger_schema.url, lock) as stranger:
        failing = asyncio.create_task(ledger.finals.fail([failed("k", claimed.fence)]))
        await somebody_waits(ledger_schema.admin, stranger)
        while not notices.of("final_write_broke"):
            await somebody_waits(ledger_schema.admin, stranger)
        await stranger.execute("ROLLBACK")
        assert await failing == set()
    assert (await ledger_schema.entry("k"))["attempts"] == 1


async def test_killed_backends_cost_no_claim(ledger: PostgresLedger, ledger_schema: Schema, notices: Notices) -> None:
    for n in range(8):
        await ledger.claims.claim(offers(f"warm {n}"))
    pids = [line._connection.get_server_pid() for line in ledger._hot._all if line._connection is not None]
    assert pids
    for pid in pids:
        await ledger_schema.execute("SELECT pg_terminate_backend($1)", pid)
    assert (await ledger.claims.claim(offers("k"))).winner(id_of("k")) is not None
    # An idle connection that was closed is known to be closed before anything is sent over it.
    assert len(notices.of("claim_broke")) <= 1


async def test_a_dead_connection_is_given_up_in_time_and_its_claim_retaken(
    open_ledger: OpenLedger, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await open_ledger(wire.url, limits={"hot_connections": 1})
    await ledger.claims.claim(offers("warm"))
    shorten(ledger._hot, monkeypatch)
    wire.go_dead()
    claimed = await ledger.claims.claim(offers("k"))
    assert claimed.winner(id_of("k")) is not None


def shorten(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the answers of open connections be awaited for a moment only."""
    for line in lines._all:
        connection: Any = line._connection
        if connection is not None:
            monkeypatch.setattr(connection, "_config", connection._config._replace(command_timeout=0.3))


@pytest.fixture
def settings(ledger_schema: Schema) -> DatabaseSettings:
    return ledger_schema.settings()


async def test_whatever_keeps_us_from_connecting_may_be_over_at_the_next_try(settings: DatabaseSettings) -> None:
    for change in ("nobody:wrong@", "oncebox:wrong@"):
        url = settings.url.get_secret_value()
        user, _, place = url.removeprefix("postgresql://").rpartition("@")
        wrong = settings.model_copy(update={"url": type(settings.url)(f"postgresql://{change}{place}")})
        assert user
        with pytest.raises(ServiceUnavailable):
            await Line(connector(wrong, role="test")).fetch("SELECT 1")


async def test_a_cancelled_call_gives_its_line_back_and_no_connection_leaks(
    settings: DatabaseSettings, ledger_schema: Schema
) -> None:
    lines = Lines(connector(settings, role="leak"), 2)

    async def hang() -> None:
        async with lines.take() as line:
            await line.fetch("SELECT pg_sleep(30)")

    async def both_are_busy() -> bool:
        count = await ledger_schema.value(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oncebox leak' AND state = 'active'"
        )
        return bool(count == 2)

    for _ in range(3):
        calls = [asyncio.create_task(hang()) for _ in range(5)]
        await eventually(both_are_busy)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await ledger_schema.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'oncebox leak'"
        )
    async with lines.take() as one, lines.take() as other:
        assert [await line.fetchval("SELECT 1") for line in (one, other)] == [1, 1]
    await lines.close()


async def test_a_transaction_that_fails_in_any_way_leaves_nothing(
    settings: DatabaseSettings, ledger_schema: Schema
) -> None:
    await ledger_schema.execute("CREATE TABLE oncebox.t (n int PRIMARY KEY)")
    insert = ledger_schema.sql("INSERT INTO oncebox.t VALUES ($1)")
    line = Line(connector(settings, role="test"))

    async def fail_with(error: BaseException) -> None:
        async with line.transaction() as tx:
            await tx.execute(insert, 1)
            raise error

    for error in (RuntimeError(), asyncio.CancelledError(), OSError()):
        with pytest.raises((RuntimeError, asyncio.CancelledError, ServiceUnavailable)):
            await fail_with(error)
    async with line.transaction() as tx:
        await tx.execute(insert, 1)
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.t") == 1
    await line.close()


@pytest.mark.parametrize("name", ["TargetServerAttributeNotMatched", "ConnectionDoesNotExistError", "ProtocolError"])
def test_errors_of_the_client_that_may_pass_are_known(name: str) -> None:
    assert issubclass(getattr(asyncpg, name), BROKEN)


async def test_unknown_is_not_decided_by_a_read(ledger: PostgresLedger, ledger_schema: Schema) -> None:
    """A look-up in doubt says unknown, and goes on saying it."""
    claimed = await ledger.claims.claim(offers("k"))
    await ledger_schema.execute("UPDATE oncebox.entries SET state = 4")
    row = (await ledger.claims.look_up([id_of("k")]))[id_of("k")]
    assert (row.state, row.fence, row.result) == (State.UNKNOWN, claimed.fence, None)
