"""The session's own thread: it outlives outages, notices a hung worker, and never dies in silence."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from tests.ledger.conftest import Notices, OpenLedger, Schema, make_ledger
from tests.ledger.locks import holding, somebody_waits
from tests.ledger.offers import done, id_of, offers
from tests.ledger.wire import Wire
from tests.waiting import eventually, eventually_sync
from worker.errors import ConfigError
from worker.ledger.ledger import PostgresLedger
from worker.ledger.migrate import migrate
from worker.settings import DatabaseSettings
from worker.stack import LocalServer, Stack

LEASE = 1.5


@asynccontextmanager
async def moving(*ledgers: PostgresLedger) -> AsyncIterator[None]:
    """A main loop that moves."""

    async def tick() -> None:
        while True:
            for ledger in ledgers:
                ledger.session.beat()
            await asyncio.sleep(0.02)

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()


async def lapsed(schema: Schema, ledger: PostgresLedger) -> bool:
    found: bool = await schema.value(
        "SELECT lease_until < clock_timestamp() FROM oncebox.sessions WHERE id = $1", ledger.session.id
    )
    return found


async def renewed(schema: Schema, ledger: PostgresLedger) -> Callable[[], Awaitable[bool]]:
    """A question that is answered yes after the next renewal."""
    query = "SELECT lease_until FROM oncebox.sessions WHERE id = $1"
    before = await schema.value(query, ledger.session.id)

    async def since() -> bool:
        return bool(await schema.value(query, ledger.session.id) != before)

    return since


async def test_a_main_loop_that_hangs_lets_its_session_lapse_and_comes_back_when_it_moves(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices
) -> None:
    ledger = await open_ledger(lease=LEASE)
    async with moving(ledger):
        for _ in range(2):
            await eventually(await renewed(ledger_schema, ledger))
        assert ledger.session.safe()
    await eventually(lambda: lapsed(ledger_schema, ledger))
    assert not ledger.session.safe()
    assert len(notices.of("session_renewal_stopped")) == 1
    async with moving(ledger):
        await eventually(ledger.session.safe)
        assert not await lapsed(ledger_schema, ledger)


def test_a_blocked_event_loop_does_not_cost_the_lease(database_url: str, schema: str) -> None:
    """Up to a lease: then it counts as hung."""

    async def main() -> None:
        settings = DatabaseSettings(url=database_url, schema_name=schema)
        await migrate(settings)
        ledger = make_ledger(settings, Notices(), lease=LEASE)
        await ledger.open()
        ledger.session.beat()
        before = ledger.session._safe_until
        try:
            # This blocks the loop, as a handler might.
            eventually_sync(lambda: ledger.session._safe_until > before, timeout=LEASE * 0.9)
        finally:
            await ledger.close()

    asyncio.run(main())


async def test_safety_counts_from_the_moment_a_renewal_was_sent(open_ledger: OpenLedger, ledger_schema: Schema) -> None:
    ledger = await open_ledger(lease=LEASE)
    async with moving(ledger):
        lock = ledger_schema.sql("SELECT 1 FROM oncebox.sessions FOR UPDATE")
        async with holding(ledger_schema.url, lock) as holder:
            ledger.session.check()
            await somebody_waits(ledger_schema.admin, holder)
            unanswered = ledger.session._safe_until
            await holder.execute("ROLLBACK")
        await eventually(lambda: ledger.session._safe_until > unanswered)
        # The answer came late; what counts is when the question went out.
        assert ledger.session._safe_until < time.clock_gettime(time.CLOCK_BOOTTIME) + LEASE * 2 / 3


async def test_a_dead_connection_does_not_cost_the_lease(
    open_ledger: OpenLedger, ledger_schema: Schema, wire: Wire, notices: Notices
) -> None:
    ledger = await open_ledger(wire.url, lease=6.0)
    async with moving(ledger):
        wire.go_dead()
        since = await renewed(ledger_schema, ledger)
        ledger.session.check()
        await eventually(since, timeout=6.0, message="the renewal hung on the dead connection")
        assert not await lapsed(ledger_schema, ledger)
        assert notices.of("session_renewal_failed")


async def test_an_error_nobody_foresaw_does_not_end_the_renewals(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices
) -> None:
    ledger = await open_ledger(lease=LEASE)
    async with moving(ledger):
        await ledger_schema.execute("ALTER TABLE oncebox.sessions RENAME TO elsewhere")
        await eventually(lambda: notices.of("session_renewal_failed"))
        await ledger_schema.execute("ALTER TABLE oncebox.elsewhere RENAME TO sessions")
        await eventually(await renewed(ledger_schema, ledger))
        await eventually(ledger.session.safe)


async def test_a_first_try_that_fails_is_raised_and_leaves_no_thread(ledger_schema: Schema, notices: Notices) -> None:
    await ledger_schema.execute("ALTER TABLE oncebox.sessions RENAME TO elsewhere")
    ledger = make_ledger(ledger_schema.settings(), notices)
    with pytest.raises(asyncpg.UndefinedTableError):
        await ledger.open()
    await eventually(lambda: not ledger.session._thread or not ledger.session._thread.is_alive())


async def test_an_opening_that_is_given_up_leaves_no_thread(ledger_schema: Schema, notices: Notices) -> None:
    ledger = make_ledger(ledger_schema.settings(), notices)
    lock = ledger_schema.sql("LOCK TABLE oncebox.sessions IN ACCESS EXCLUSIVE MODE")
    async with holding(ledger_schema.url, lock) as holder:
        opening = asyncio.create_task(ledger.open())
        await somebody_waits(ledger_schema.admin, holder)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    thread = ledger.session._thread
    assert thread is not None
    await eventually(lambda: not thread.is_alive())


async def test_closing_ends_the_session_and_leaves_nothing_behind(ledger_schema: Schema, notices: Notices) -> None:
    ledger = make_ledger(ledger_schema.settings(), notices)
    await ledger.open()
    claimed = await ledger.claims.claim(offers("k"))
    await ledger.finals.complete([done("k", claimed.fence)])
    session = ledger.session.id
    await ledger.close()
    assert not ledger.session.safe()
    assert await ledger_schema.value("SELECT ended_at IS NOT NULL FROM oncebox.sessions WHERE id = $1", session)
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.open_claims") == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "oncebox-session"]

    async def no_backend() -> bool:
        count = await ledger_schema.value(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%' || $1 || '%' AND pid <> pg_backend_pid()",
            ledger_schema.name,
        )
        return bool(count == 0)

    await eventually(no_backend)


@pytest.fixture
def postgres(stack: Stack) -> LocalServer:
    try:
        return stack.server("postgres")
    except ConfigError as error:
        pytest.skip(str(error))


async def test_a_restart_of_postgres_costs_no_running_claim(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices, postgres: LocalServer
) -> None:
    ledger = await open_ledger(lease=LEASE)
    async with moving(ledger):
        claimed = await ledger.claims.claim(offers("running"))
        before = ledger.session.id
        await asyncio.to_thread(postgres.stop)
        # Longer than the lease: nothing may start, and calls wait.
        offering = asyncio.create_task(ledger.claims.claim(offers("offered meanwhile")))
        await eventually(lambda: not ledger.session.safe())
        await eventually(lambda: notices.of("claim_broke"))
        await asyncio.to_thread(postgres.start)
        await eventually(ledger.session.safe)
        assert (await offering).winner(id_of("offered meanwhile")) is not None
        assert ledger.session.id == before, "lapsed, but nobody ended it"
        assert ledger.session.covers(claimed.fence)
        assert await ledger.finals.complete([done("running", claimed.fence)]) == set()


async def test_a_session_that_was_ended_during_an_outage_takes_its_claims_along(
    open_ledger: OpenLedger, ledger_schema: Schema, postgres: LocalServer, notices: Notices
) -> None:
    ledger = await open_ledger(lease=LEASE)
    async with moving(ledger):
        claimed = await ledger.claims.claim(offers("running"))
        before = ledger.session.id
        await ledger_schema.end(before)
        await asyncio.to_thread(postgres.stop)
        await eventually(lambda: not ledger.session.safe())
        await asyncio.to_thread(postgres.start)
        await eventually(ledger.session.safe)
        assert ledger.session.id != before
        assert await ledger.finals.complete([done("running", claimed.fence)]) == set()
        assert notices.of("session_replaced")[-1]["settled_meanwhile"] == 0


async def test_a_primary_that_turns_read_only_is_left_and_found_again(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices, postgres: LocalServer
) -> None:
    ledger = await open_ledger(lease=LEASE)
    name = await ledger_schema.value("SELECT current_database()")
    terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'oncebox run%'"
    async with moving(ledger):
        claimed = await ledger.claims.claim(offers("running"))
        try:
            # As after a failover: the address leads to a standby, and some connections outlive the change.
            await ledger_schema.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            await ledger_schema.execute(terminate)
            completing = asyncio.create_task(ledger.finals.complete([done("running", claimed.fence)]))
            offering = asyncio.create_task(ledger.claims.claim(offers("offered meanwhile")))
            await eventually(lambda: notices.of("session_renewal_failed"))
            await eventually(lambda: notices.of("final_write_broke"))
            await eventually(lambda: not ledger.session.safe())
            assert not completing.done()
        finally:
            repair = await asyncpg.connect(postgres.url)
            await repair.execute("SET default_transaction_read_only = off")
            await repair.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            await repair.close()
        assert await completing == set()
        assert (await offering).winner(id_of("offered meanwhile")) is not None
        await eventually(ledger.session.safe)
        assert "TargetServerAttributeNotMatched" in notices.of("final_write_broke")[-1]["error"]


@pytest.mark.usefixtures("postgres")
async def test_a_database_with_another_isolation_level_changes_nothing_for_our_statements(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    name = await ledger_schema.value("SELECT current_database()")
    await ledger_schema.execute(f'ALTER DATABASE "{name}" SET default_transaction_isolation = serializable')
    try:
        one, other = await open_ledger(), await open_ledger()
        for lines, level in ((one._hot, "read committed"), (one._rare, "read committed"), (one._user, "serializable")):
            async with lines.take() as line:
                assert await line.fetchval("SHOW transaction_isolation") == level
        keys = [f"k{n}" for n in range(50)]
        answers = await asyncio.gather(one.claims.claim(offers(*keys)), other.claims.claim(offers(*keys)))
        assert sum(answer.winner(id_of(key)) is not None for answer in answers for key in keys) == 50
    finally:
        await ledger_schema.execute(f'ALTER DATABASE "{name}" RESET default_transaction_isolation')


async def test_connections_that_outlive_their_primary_are_given_up(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices
) -> None:
    ledger = await open_ledger(limits={"hot_connections": 1})
    claimed = await ledger.claims.claim(offers("k"))
    async with ledger._hot.take() as line:
        await line.fetch("SET default_transaction_read_only = on")
    assert await ledger.finals.complete([done("k", claimed.fence)]) == set()
    assert "ReadOnly" in notices.of("final_write_broke")[0]["error"]
