"""A session ends once and for ever, and no claim commits into it afterwards."""

import asyncio

import asyncpg
import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.locks import Connection, holding, somebody_waits
from tests.ledger.offers import id_of, offers
from tests.waiting import eventually
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import State

BARE_UPDATE = (
    "UPDATE oncebox.sessions SET ended_at = clock_timestamp()"
    " WHERE id = $1 AND ended_at IS NULL AND lease_until < clock_timestamp() AND $2::bigint IS NOT NULL RETURNING id"
)


async def two(open_ledger: OpenLedger, schema: Schema) -> tuple[PostgresLedger, PostgresLedger]:
    """A worker whose lease has lapsed, and one that may end it."""
    dying, other = await open_ledger(), await open_ledger()
    await dying.claims.claim(offers("warm"))
    await schema.let_lapse(dying.session.id)
    await schema.steady(other.session.id)
    return dying, other


async def claims_into(schema: Schema, session: int) -> int:
    """Claims that committed into a session after it ended: nobody who settled it has seen them."""
    found: int = await schema.value(
        "SELECT count(*) FROM oncebox.open_claims o JOIN oncebox.entries e ON e.fence = o.fence AND e.id = ANY(o.ids)"
        " WHERE o.session = $1",
        session,
    )
    return found


async def test_ending_waits_for_a_claim_under_way_and_settlement_sees_it(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dying, other = await two(open_ledger, ledger_schema)
    insert = ledger_schema.sql(
        "INSERT INTO oncebox.entries (id, fence, expires_at, operation, state, kind, format)"
        " VALUES (encode($1::bytea, 'hex')::uuid, 1, now(), 1, 1, 1, 1)"
    )
    async with holding(ledger_schema.url, insert, id_of("k")) as holder:
        claiming = asyncio.create_task(dying.claims.claim(offers("k")))
        [claim] = await somebody_waits(ledger_schema.admin, holder)
        ending = asyncio.create_task(other.settling.end_lapsed())
        await blocked_by(ledger_schema, claim)
        await holder.execute("ROLLBACK")
        claimed = await claiming
        assert await ending == [dying.session.id]
    assert claimed.winner(id_of("k")) is not None
    assert await other.settling.settle() == {State.UNKNOWN: 2}
    assert (await ledger_schema.entry("k"))["state"] == State.UNKNOWN


async def blocked_by(schema: Schema, pid: int) -> None:
    await eventually(
        lambda: schema.value("SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", pid)
    )


async def claim_in_slow_motion(
    schema: Schema, ledger: PostgresLedger, gate: int
) -> tuple[Connection, asyncio.Task[list[asyncpg.Record]]]:
    """A claim statement that has its snapshot, and stands before the lock on its session row until the gate opens."""
    text = ledger.queries["claim"].replace(
        "FOR KEY SHARE", f"AND pg_advisory_lock_shared({gate}) IS NOT NULL FOR KEY SHARE"
    )
    connection = await asyncpg.connect(schema.url)
    text = text.replace("$3::uuid[]", "ARRAY[encode($3::bytea, 'hex')::uuid]")
    arguments = [[1], [0], [b"f"], None, [b"k"], [1], [1], [60.0], [1], [0], [1]]
    call = connection.fetch(text, ledger.session.id, 999_999, id_of("k"), *arguments)
    return connection, asyncio.create_task(call)


@pytest.mark.parametrize("seeded_bug", [False, True], ids=["as written", "seeded bug: a bare UPDATE"])
async def test_no_claim_commits_into_an_ended_session_even_with_an_older_snapshot(
    open_ledger: OpenLedger, ledger_schema: Schema, seeded_bug: bool
) -> None:
    dying, other = await two(open_ledger, ledger_schema)
    if seeded_bug:
        other.queries["end_session"] = ledger_schema.sql(BARE_UPDATE)
    gate = 4711
    await ledger_schema.execute(f"SELECT pg_advisory_lock({gate})")
    connection, claiming = await claim_in_slow_motion(ledger_schema, dying, gate)
    try:
        await somebody_waits(ledger_schema.admin, ledger_schema.admin)
        assert await other.settling.end_lapsed() == [dying.session.id]
        await other.settling.settle()
        await ledger_schema.execute(f"SELECT pg_advisory_unlock({gate})")
        won = await claiming
    finally:
        connection.terminate()
    if seeded_bug:
        assert len(won) == 1, "the test can fail: a bare UPDATE lets the claim in"
        assert await claims_into(ledger_schema, dying.session.id) == 1
    else:
        assert won == []
        assert await claims_into(ledger_schema, dying.session.id) == 0


@pytest.mark.parametrize("seeded_bug", [False, True], ids=["as written", "seeded bug: a bare UPDATE"])
async def test_ending_does_not_pass_a_claim_that_holds_the_session(
    open_ledger: OpenLedger, ledger_schema: Schema, seeded_bug: bool
) -> None:
    dying, other = await two(open_ledger, ledger_schema)
    text = ledger_schema.sql(BARE_UPDATE) if seeded_bug else other.queries["end_session"]
    share = ledger_schema.sql("SELECT id FROM oncebox.sessions WHERE id = $1 FOR KEY SHARE")
    async with holding(ledger_schema.url, share, dying.session.id):
        call = ledger_schema.admin.fetch(text, dying.session.id, other.session.id)
        await ledger_schema.execute("SET lock_timeout = '200ms'")
        if seeded_bug:
            assert len(await call) == 1, "the test can fail: a bare UPDATE does not wait"
        else:
            with pytest.raises(asyncpg.LockNotAvailableError):
                await call


async def test_a_session_that_is_renewed_while_it_is_being_ended_lives(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dying, other = await two(open_ledger, ledger_schema)
    async with holding(ledger_schema.url, dying.queries["renew"], dying.session.id) as renewing:
        ending = asyncio.create_task(other.settling.end_lapsed())
        await somebody_waits(ledger_schema.admin, renewing)
        await renewing.execute("COMMIT")
        assert await ending == []
    assert await ledger_schema.value("SELECT ended_at FROM oncebox.sessions WHERE id = $1", dying.session.id) is None


async def test_a_renewal_that_comes_while_the_session_is_being_ended_does_not_revive_it(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dying, other = await two(open_ledger, ledger_schema)
    arguments = (dying.session.id, other.session.id)
    async with holding(ledger_schema.url, other.queries["end_session"], *arguments) as ending:
        renewing = asyncio.create_task(ledger_schema.admin.fetch(dying.queries["renew"], dying.session.id))
        watcher = await asyncpg.connect(ledger_schema.url)
        await somebody_waits(watcher, ending)
        await watcher.close()
        await ending.execute("COMMIT")
        assert await renewing == []


async def test_a_lapsed_session_that_nobody_ended_goes_on_and_is_steady_only_from_now(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dying, _ = await two(open_ledger, ledger_schema)
    await ledger_schema.steady(dying.session.id)
    [row] = await ledger_schema.fetch(dying.queries["renew"], dying.session.id)
    assert row["id"] == dying.session.id
    fresh = "lease_until > clock_timestamp() AND steady_since > clock_timestamp() - lease"
    assert await ledger_schema.value(f"SELECT {fresh} FROM oncebox.sessions WHERE id = $1", dying.session.id)


async def test_after_an_outage_longer_than_the_lease_the_first_worker_back_ends_nobody(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    first, second = await open_ledger(), await open_ledger()
    claimed = await second.claims.claim(offers("k"))
    for session in (first.session.id, second.session.id):
        await ledger_schema.steady(session)
        await ledger_schema.let_lapse(session)
    assert await first.settling.end_lapsed() == [], "its own lease has lapsed, too"
    await ledger_schema.fetch(first.queries["renew"], first.session.id)
    assert await first.settling.end_lapsed() == [], "the others have had no time to come back"
    await ledger_schema.fetch(second.queries["renew"], second.session.id)
    await ledger_schema.steady(first.session.id)
    assert await first.settling.end_lapsed() == [], "the second one is back"
    assert (await ledger_schema.entry("k"))["fence"] == claimed.fence


async def test_a_new_session_ends_nobody_before_it_is_one_lease_old(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dying, other = await open_ledger(), await open_ledger()
    await ledger_schema.let_lapse(dying.session.id)
    assert await other.settling.end_lapsed() == []
    await ledger_schema.steady(other.session.id)
    assert await other.settling.end_lapsed() == [dying.session.id]
    assert await other.settling.end_lapsed() == [], "once and for ever"


async def test_an_ended_session_ends_nobody(open_ledger: OpenLedger, ledger_schema: Schema) -> None:
    dying, other = await two(open_ledger, ledger_schema)
    await ledger_schema.end(other.session.id)
    assert await other.settling.end_lapsed() == []
    assert await ledger_schema.value("SELECT ended_at FROM oncebox.sessions WHERE id = $1", dying.session.id) is None


async def test_one_session_that_cannot_be_ended_now_does_not_keep_the_others(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    dying, other = await open_ledger(), await open_ledger(limits={"statement_timeout": "300ms"})
    third = await open_ledger()
    for session in (dying.session.id, third.session.id):
        await ledger_schema.let_lapse(session)
    await ledger_schema.steady(other.session.id)
    share = ledger_schema.sql("SELECT id FROM oncebox.sessions WHERE id = $1 FOR KEY SHARE")
    async with holding(ledger_schema.url, share, dying.session.id):
        assert await other.settling.end_lapsed() == [third.session.id]


async def test_a_claim_after_the_end_wins_nothing_and_the_session_is_replaced_at_once(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    before = ledger.session.id
    await ledger_schema.end(before)
    claimed = await ledger.claims.claim(offers("k"))
    assert claimed.winner(id_of("k")) is None
    assert claimed.rows == {}
    await eventually(lambda: ledger.session.id != before, message="renewals are 10 s apart")
    assert (await ledger.claims.claim(offers("k"))).winner(id_of("k")) is not None
