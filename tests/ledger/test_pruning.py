"""Pruning: what has expired goes, once nothing can need it any more, and never what somebody needs."""

import asyncio
import json
from datetime import timedelta
from uuid import UUID

import pytest

from tests.ledger.conftest import Notices, OpenLedger, Schema
from tests.ledger.locks import holding, somebody_waits
from tests.ledger.offers import done, id_of, offers, record
from tests.ledger.pruning import TTL, House
from tests.ledger.test_plans import scans
from worker.ledger.ledger import PostgresLedger
from worker.ledger.retention import Kept
from worker.rules.horizons import FoundTopic
from worker.rules.lanes import Lane, Progress
from worker.rules.writes import Parking

LONG_AGO = timedelta(days=2)
NOTHING_ELSE = Kept(1e8, 1e8, 1e8)


@pytest.fixture
async def house(ledger_schema: Schema, ledger: PostgresLedger, notices: Notices) -> House:
    return await House.build(ledger_schema, ledger, notices)


async def test_only_what_has_expired_and_nobody_needs_goes(house: House) -> None:
    await house.sample(10, 10)
    await house.entries(2, expired=LONG_AGO, key="completed")
    await house.entries(1, expired=LONG_AGO, state=3, key="failed")
    await house.entries(1, expired=LONG_AGO, state=1, key="in progress")
    await house.entries(1, expired=LONG_AGO, state=4, key="unknown")
    await house.entries(1, expired=LONG_AGO, held=1, key="held")
    await house.entries(1, expired=timedelta(minutes=30), key="within the slack")
    await house.entries(1, expired=-TTL, key="fresh")
    pruned = await house.prune()
    assert (pruned.entries, pruned.holds) == (3, ())
    assert await house.keys() == ["fresh1", "held1", "in progress1", "unknown1", "within the slack1"]


async def test_the_wall_clock_has_a_slack_of_an_hour_or_a_tenth_of_the_ttl(house: House) -> None:
    await house.sample(10, 10)
    await house.entries(1, expired=TTL / 10 - timedelta(minutes=1), key="within")
    await house.entries(1, expired=TTL / 10 + timedelta(minutes=1), key="beyond")
    assert (await house.prune()).entries == 1
    assert await house.keys() == ["within1"]
    await house.schema.execute("UPDATE oncebox.operations SET ttl = interval '1 minute'")
    await house.entries(1, expired=timedelta(minutes=61), key="beyond")
    await house.entries(1, expired=timedelta(minutes=59), key="near")
    assert (await house.prune()).entries == 2
    assert await house.keys() == ["near1"]


async def test_while_a_feed_is_behind_time_stands_still_for_its_entries(house: House) -> None:
    stands_at = await house.sample(10, 10)
    await house.let_pass(timedelta(days=9))
    await house.sample(500, 10)
    await house.entries(1, expired=timedelta(days=10), key="before the outage")
    await house.entries(1, expired=timedelta(days=8), key="during it")
    pruned = await house.prune()
    assert await house.keys() == ["during it1"]
    (hold,) = pruned.holds
    assert (hold.feed, hold.since) == ("g orders/0", stands_at - timedelta(days=9))
    assert house.notices.of("pruning_held_back")
    # What it read meanwhile counts only up to where the log ended then.
    await house.sample(600, 499)
    assert (await house.prune()).entries == 0
    await house.sample(600, 600)
    assert (await house.prune()).entries == 1


async def test_what_holds_pruning_back_and_since_when_can_be_read(house: House) -> None:
    pruning = house.ledger.pruning
    (held,) = await pruning.held_back()
    assert (held.operation, held.group, held.topic, held.partition) == ("webhooks/take", "g", "orders", 0)
    assert held.since == await house.schema.value("SELECT registered_at FROM oncebox.feeds"), "it was never sampled"
    moment = await house.sample(10, 10)
    assert await pruning.held_back() == []
    await house.let_pass(timedelta(days=9))
    (held,) = await pruning.held_back()
    assert held.since == moment - timedelta(days=9)
    await house.entries(1, expired=LONG_AGO)
    (behind,) = await pruning.behind()
    assert behind.horizon is None
    assert behind.oldest == await house.schema.value("SELECT expires_at FROM oncebox.entries")
    await house.sample(10, 10)
    pruned = await house.prune()
    (behind,) = await pruning.behind()
    assert (behind.horizon, behind.oldest) == (pruned.horizon, None)


async def test_another_groups_feed_counts_until_it_is_retired(house: House) -> None:
    await house.sample(10, 10)
    await house.ledger.feeds.register("renamed", "orders", [0], [house.operation])
    await house.entries(1, expired=LONG_AGO)
    assert (await house.prune()).horizon is None, "it was never sampled"
    await house.sample(10, 5, group="renamed")
    assert (await house.prune()).horizon is None, "it never was at the end of its log"
    await house.schema.execute("UPDATE oncebox.feeds SET retired_at = now() WHERE consumer_group = 'renamed'")
    assert (await house.prune()).entries == 1
    await house.sample(10, 5, group="renamed")
    assert (await house.prune()).horizon is None, "what is sampled is alive"


@pytest.mark.parametrize("case", ["Kafka is away", "the topic is gone", "a new partition", "the topic was made anew"])
async def test_nothing_goes_before_kafka_has_listed_what_is_known(house: House, case: str) -> None:
    await house.sample(10, 10)
    await house.schema.execute("UPDATE oncebox.feeds SET topic_id = '00000000-0000-0000-0000-000000000001'")
    await house.entries(1, expired=LONG_AGO)
    house.kafka.topics = {
        "Kafka is away": None,
        "the topic is gone": {},
        "a new partition": {"orders": FoundTopic(2)},
        "the topic was made anew": {"orders": FoundTopic(1, bytes(15) + b"\2")},
    }[case]
    pruned = await house.prune()
    assert (pruned.horizon, pruned.entries) == (None, 0)
    assert pruned.holds
    house.kafka.topics = {"orders": FoundTopic(1, bytes(15) + b"\1")}
    assert (await house.prune()).entries == 1


async def test_a_record_that_is_parked_on_the_very_row_being_pruned_keeps_it(house: House) -> None:
    ledger, schema = house.ledger, house.schema
    ledger.queries["wait_briefly"] = "SELECT set_config('lock_timeout', '30s', true)"
    await house.sample(10, 10)
    await house.entries(3, expired=LONG_AGO, state=3)
    (row,) = await schema.fetch("SELECT id FROM oncebox.entries WHERE key = 'k2'")
    async with holding(schema.url, ledger.queries["hold"], [UUID(bytes=row[0])], [1], [1, 3, 4]) as parking:
        pruning = asyncio.create_task(house.prune())
        await somebody_waits(schema.admin, parking)
        await parking.execute("COMMIT")
        assert (await pruning).entries == 2
    assert await house.keys() == ["k2"]


async def test_a_record_that_comes_to_be_parked_on_a_row_just_pruned_is_judged_again(house: House) -> None:
    ledger, schema = house.ledger, house.schema
    await house.sample(10, 10)
    await house.entries(1, expired=LONG_AGO, state=3)
    (row,) = await schema.fetch("SELECT id, expires_at FROM oncebox.entries")
    parking = Parking(record(3), "retry", bytes(row[0]), house.operation, 10.0)
    moment = await ledger.feeds.moment()
    async with holding(schema.url, ledger.queries["prune"], [UUID(bytes=row[0])], moment) as pruning:
        parked = asyncio.create_task(ledger.parking.park([parking]))
        await somebody_waits(schema.admin, pruning)
        await pruning.execute("COMMIT")
        assert await parked == {parking.place}
    assert await schema.value("SELECT count(*) FROM oncebox.parked") == 0


async def test_a_locked_row_delays_its_own_batch_only(house: House) -> None:
    await house.sample(10, 10)
    await house.entries(1000, expired=LONG_AGO + timedelta(hours=1), key="old")
    await house.entries(1, expired=LONG_AGO, key="younger")
    lock = house.schema.sql("SELECT 1 FROM oncebox.entries WHERE key = 'old7' FOR UPDATE")
    async with holding(house.schema.url, lock):
        await house.prune()
        left = await house.keys()
    assert "younger1" not in left
    assert "old7" in left
    assert house.notices.of("prune_delayed")
    await house.prune()
    assert await house.keys() == []


async def test_entries_that_cannot_go_do_not_stand_in_the_way_of_others(house: House) -> None:
    await house.sample(10, 10)
    await house.entries(2500, expired=LONG_AGO + timedelta(hours=1), state=4, key="unknown")
    await house.schema.execute("UPDATE oncebox.entries SET expires_at = (SELECT min(expires_at) FROM oncebox.entries)")
    await house.entries(1500, expired=LONG_AGO)
    assert (await house.prune()).entries == 1500


async def test_with_an_audit_ttl_the_row_moves_to_the_history_without_its_result(
    ledger_schema: Schema, ledger: PostgresLedger, notices: Notices
) -> None:
    house = await House.build(ledger_schema, ledger, notices, audit_ttl=timedelta(days=30))
    await house.sample(10, 10)
    await house.entries(1, expired=LONG_AGO)
    entry = await ledger_schema.value("SELECT id FROM oncebox.entries")
    assert (await house.prune()).entries == 1
    (row,) = await ledger_schema.fetch("SELECT * FROM oncebox.history")
    assert (row["id"], row["event"], row["fence"], row["body"]) == (entry, "expired", 1, None)
    detail = json.loads(row["detail"])
    assert (detail["key"], detail["state"], detail["result_status"]) == ("k1", "completed", "ok")
    assert "the result" not in row["detail"]
    await house.let_pass(timedelta(days=29))
    await ledger.retention.forget(NOTHING_ELSE)
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.history") == 1
    await house.let_pass(timedelta(days=2))
    assert (await ledger.retention.forget(NOTHING_ELSE))["history"] == 1


async def test_what_may_be_gone_is_announced_before_the_first_row_goes(house: House) -> None:
    await house.sample(10, 10)
    assert (await house.prune()).entries == 0
    operations = [house.operation]
    assert await house.ledger.feeds.forgotten("orders", operations, None) == {}, "nothing was pruned"
    await house.entries(1, expired=LONG_AGO)
    pruned = await house.prune()
    # The position was finished only now, far less than a TTL ago; its entry is gone all the same.
    assert await house.ledger.feeds.forgotten("orders", operations, None) == {0: {house.operation: 10}}
    assert await house.schema.value("SELECT horizon FROM oncebox.operations") == pruned.horizon


async def test_a_prune_stops_when_a_feed_goes_back_behind_its_horizon(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.sample(10, 10)
    await house.entries(3000, expired=LONG_AGO)
    whole = house.ledger.pruning.prune

    async def then_rewind(*arguments: object) -> int:
        gone = await whole(*arguments)  # type: ignore[arg-type]
        await house.sample(10, 2)
        return gone

    monkeypatch.setattr(house.ledger.pruning, "prune", then_rewind)
    assert (await house.prune()).entries == 1000
    assert house.notices.of("prune_stopped")


async def test_two_janitors_at_once_while_messages_flow_do_no_harm(
    house: House, open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    await house.sample(10, 10)
    await ledger_schema.execute("ALTER TABLE oncebox.entries SET (autovacuum_enabled = false)")
    await house.entries(200_000, expired=LONG_AGO)
    for state in (1, 4):
        await house.entries(500, expired=LONG_AGO, state=state, key=f"state {state} ")
    await house.entries(500, expired=LONG_AGO, held=1, key="held ")
    await house.entries(500, expired=timedelta(hours=1), key="inside ")
    other = await open_ledger()
    over = asyncio.Event()
    flow = asyncio.create_task(_flow(await open_ledger(), house.operation, over))
    first, second = await asyncio.gather(house.prune(), house.prune(other))
    over.set()
    sent = await flow
    assert first.entries + second.entries == 200_000
    assert min(first.entries, second.entries) > 0
    left = await ledger_schema.value(
        "SELECT count(*) FROM oncebox.entries WHERE NOT encode(key, 'escape') LIKE 'new %'"
    )
    assert left == 2000
    finished = "SELECT count(*) FROM oncebox.entries WHERE encode(key, 'escape') LIKE 'new %' AND state = 2"
    assert await ledger_schema.value(finished) == sent


async def _flow(ledger: PostgresLedger, operation: int, over: asyncio.Event) -> int:
    sent = 0
    while not over.is_set():
        keys = [f"new {sent + n}" for n in range(50)]
        claimed = await ledger.claims.claim(offers(*keys, operation=operation))
        assert claimed.all_won
        assert await ledger.finals.complete([done(key, claimed.fence) for key in keys]) == set()
        sent += len(keys)
        await asyncio.sleep(0.01)
    return sent


async def test_a_duty_is_taken_once_per_interval_by_whoever_comes_first(house: House, open_ledger: OpenLedger) -> None:
    other = await open_ledger()
    pruners = [house.pruner(), house.pruner(other)]
    answers = await asyncio.gather(*(pruner.prune_due() for pruner in pruners))
    assert sorted(len(pruned) for pruned in answers) == [0, 1]
    await house.let_pass(timedelta(seconds=61))
    assert len(await pruners[1].prune_due()) == 1
    assert await pruners[0].prune_due() == []


@pytest.mark.parametrize("analyzed", [False, True], ids=["statistics of an empty table", "fresh statistics"])
async def test_pruning_finds_its_work_without_reading_the_table(house: House, analyzed: bool) -> None:
    schema = house.schema
    await schema.execute("ALTER TABLE oncebox.entries SET (autovacuum_enabled = false)")
    await schema.execute("ANALYZE oncebox.entries")
    await house.sample(10, 10)
    await house.entries(30_000, expired=-TTL, key="fresh")
    await house.entries(9000, expired=LONG_AGO)
    if analyzed:
        await schema.execute("ANALYZE oncebox.entries")
    before = await scans(schema)
    assert (await house.prune()).entries == 9000
    async with house.ledger._slow.take() as line:
        await line.fetch("SELECT pg_stat_force_next_flush()")
    assert await scans(schema) == before
    read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = 'entries_expiring'"
    assert await schema.value(read, schema.name) < 4 * 9000, "each batch begins where the last one ended"


async def test_what_was_finished_is_known_by_the_samples_of_any_group_of_the_operation(house: House) -> None:
    feeds, operation = house.ledger.feeds, house.operation
    await house.sample(30, 30)
    await house.let_pass(TTL + timedelta(minutes=1))
    await house.sample(40, 35)
    assert await feeds.forgotten("orders", [operation], None) == {0: {operation: 30}}
    assert await feeds.forgotten("orders", [operation + 1], None) == {}, "another operation read nothing"
    # Going back does not undo what was finished.
    await house.sample(40, 5)
    await house.let_pass(TTL + timedelta(minutes=1))
    assert await feeds.forgotten("orders", [operation], None) == {0: {operation: 35}}
    lane = Lane("orders", 0, 0)
    lane.topic_id = b"a" * 16
    await feeds.place("g", "orders", [lane], {})
    assert await feeds.forgotten("orders", [operation], b"b" * 16) == {}, "it is another log"
    await feeds.register("renamed", "orders", [0], [operation])
    await feeds.sample("renamed", await feeds.moment(), [Progress(lane, 40, 0)])
    assert (await feeds.forgotten("orders", [operation], b"a" * 16))[0][operation] == 35
    assert not await house.schema.fetch("SELECT 1 FROM oncebox.entries WHERE id = $1", id_of("nobody"))
