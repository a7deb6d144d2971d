"""Retention: what nobody needs is kept for a while and then goes; what somebody needs stays, however old."""

from datetime import timedelta

import pytest

from tests.ledger.conftest import Notices, OpenLedger, Schema
from tests.ledger.offers import offers
from tests.ledger.pruning import TTL, House
from worker.ledger.ledger import PostgresLedger
from worker.ledger.retention import Kept

DAY = 86_400.0
KEPT = Kept(history=90 * DAY, sessions=7 * DAY, audit=365 * DAY)


@pytest.fixture
async def house(ledger_schema: Schema, ledger: PostgresLedger, notices: Notices) -> House:
    return await House.build(ledger_schema, ledger, notices)


async def test_ended_sessions_go_but_not_those_that_open_claims_name(house: House, open_ledger: OpenLedger) -> None:
    schema = house.schema
    with_claims = await open_ledger()
    await with_claims.claims.claim(offers("a"))
    without = await open_ledger()
    for session in (with_claims.session.id, without.session.id):
        await schema.end(session)
        await schema.execute(
            "UPDATE oncebox.sessions SET ended_at = ended_at - interval '8 days' WHERE id = $1", session
        )
    assert await house.ledger.retention.forget(KEPT) == {"sessions": 1}
    left = {
        row[0]
        for row in await schema.fetch("SELECT id FROM oncebox.sessions WHERE ended_at < now() - interval '7 days'")
    }
    assert left == {with_claims.session.id}


async def test_audit_and_history_go_after_their_time_in_batches(house: House) -> None:
    schema = house.schema
    for days in (400, 10):
        await schema.execute(
            "INSERT INTO oncebox.audit (at, actor, action, subject, reason)"
            " SELECT now() - $1::interval, 'a', 'b', 'c', 'd'"
            " FROM generate_series(1, 1500)",
            timedelta(days=days),
        )
        await schema.execute(
            "INSERT INTO oncebox.history (id, at, event) SELECT gen_random_uuid(), now() - $1::interval, 'probe'"
            " FROM generate_series(1, 1500)",
            timedelta(days=days),
        )
    assert await house.ledger.retention.forget(KEPT) == {"audit": 1500, "history": 1500}
    assert await house.ledger.retention.forget(KEPT) == {}
    for table in ("audit", "history"):
        assert await schema.value(f"SELECT count(*) FROM oncebox.{table}") == 1500


async def test_samples_shrink_to_one_an_hour_and_beyond_the_longest_ttl_to_the_highest_watermark(house: House) -> None:
    schema, feeds = house.schema, house.ledger.feeds
    # One a minute for ten days, always a little behind.
    await schema.execute(
        "INSERT INTO oncebox.samples (consumer_group, topic, partition, at, end_offset, watermark, highest)"
        " SELECT 'g', 'orders', 0, now() - n * interval '1 minute', 20000 - n + 5, 20000 - n, 20000 - n"
        " FROM generate_series(0, 14399) n"
    )
    (before,) = await feeds.standing(house.operation)
    forgotten = await feeds.forgotten("orders", [house.operation], None)
    gone = await house.ledger.retention.forget(KEPT)
    (after,) = await feeds.standing(house.operation)
    assert after == before or after.log_time == before.log_time
    left = await schema.value("SELECT count(*) FROM oncebox.samples")
    assert gone["samples"] + left == 14_400
    assert 1440 + 6 * 24 <= left <= 1440 + 6 * 24 + 4
    old = await schema.fetch("SELECT highest FROM oncebox.samples WHERE at < clock_timestamp() - $1::interval", TTL)
    assert len(old) == 1
    assert await feeds.forgotten("orders", [house.operation], None) == {0: {house.operation: old[0][0]}}
    assert forgotten[0][house.operation] - old[0][0] <= 60, "an hour coarser, less than the slack of pruning"
    assert await house.ledger.retention.forget(KEPT) == {}


async def test_the_sample_that_log_time_stands_at_outlives_the_longest_ttl(house: House) -> None:
    stands_at = await house.sample(10, 10)
    await house.let_pass(timedelta(days=20))
    for n in range(3):
        await house.sample(100 + n, 10 + n)
    await house.let_pass(timedelta(days=20))
    await house.ledger.retention.forget(KEPT)
    (feed,) = await house.ledger.feeds.standing(house.operation)
    assert feed.log_time == stands_at - timedelta(days=40)
    assert feed.watermark == 12
