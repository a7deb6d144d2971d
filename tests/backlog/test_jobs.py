"""A replay is a job: it can be stopped, cancelled, gone on with, limited, and never runs what somebody else runs."""

import asyncio
import time
from collections import Counter

from tests.backlog.shop import EVERYTHING, TO_THE_END, Shop, body, foretold, orders, replayed, resumed
from tests.backlog.telling import Telling
from tests.engine.site import Site
from tests.waiting import eventually
from worker.app.choosing import Plan
from worker.app.replaying import replay
from worker.ledger.audit import Act
from worker.ledger.desk import open_desk
from worker.ledger.jobs import cancel_job, read_job


async def test_told_to_stop_it_keeps_its_place_and_goes_on_there(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic(2))
    keys = [f"k{n}" for n in range(300)]
    site.produce(shop.topic, orders(keys))
    stop = asyncio.Event()
    plan = Plan(shop.topic, TO_THE_END, rate=100)
    running = asyncio.create_task(replay(site.settings(), shop.registry, plan, actor="test", show=telling, stop=stop))
    await eventually(lambda: sum(shop.ran.values()) > 20, 20, "nothing runs")
    stop.set()
    assert await asyncio.wait_for(running, 20) == 3
    assert telling.report["state"] == "stopped"
    assert 0 < telling.report["done"] < 300
    assert sum(shop.ran.values()) == telling.report["outcomes"]["executed"]
    job = telling.job
    assert await resumed(site, shop, telling, job) == 0
    assert shop.ran == Counter(keys)
    assert telling.report["outcomes"]["executed"] == 300, "earlier runs are counted, too"
    [row] = await site.fetch("SELECT state, report IS NOT NULL AS reported FROM oncebox.jobs")
    assert (row["state"], row["reported"]) == ("done", True)


async def test_cancelled_it_stops_within_seconds(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, orders([f"k{n}" for n in range(200)]))
    plan = Plan(shop.topic, TO_THE_END, rate=10)
    running = asyncio.create_task(
        replay(site.settings(), shop.registry, plan, actor="test", show=telling, stop=asyncio.Event())
    )
    await eventually(lambda: sum(shop.ran.values()) > 3, 20, "nothing runs")
    async with open_desk(site.settings().database) as desk:
        act = Act("me", "cancel job", f"job {telling.job}", "enough")
        assert await cancel_job(desk.line, desk.queries, telling.job, act) == "running"
        began = time.monotonic()
        assert await asyncio.wait_for(running, 20) == 3
        assert time.monotonic() - began < 10
        job = await read_job(desk.line, desk.queries, telling.job)
        assert job is not None
        assert job.standing == "cancelled"
        assert await cancel_job(desk.line, desk.queries, telling.job, act) is None
    assert [r["action"] for r in await site.fetch("SELECT action FROM oncebox.audit")] == ["cancel job"]


async def test_the_rate_holds_for_executions_and_not_for_replays(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    done = [f"done-{n}" for n in range(200)]
    site.produce(shop.topic, orders(done))
    await site.run(shop.registry)
    missing = [f"missing-{n}" for n in range(30)]
    site.produce(shop.topic, orders([*done, *missing, *missing, *done]))
    began = time.monotonic()
    assert await replayed(site, shop, telling, Plan(shop.topic, TO_THE_END, rate=15)) == 0
    # 660 records at 15 a second would take 44 s; 30 of them run.
    assert 1.5 < time.monotonic() - began < 20
    assert shop.ran == Counter([*done, *missing])


async def test_a_key_that_a_live_worker_runs_is_waited_for(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    shop.gate = asyncio.Event()
    site.produce(shop.topic, orders(["slow"]))
    async with site.worker(shop.registry):
        await asyncio.wait_for(shop.began.wait(), 20)
        told = await foretold(site, shop, telling, Plan(shop.topic, TO_THE_END))
        assert told["classes"] == {"wait": 1}
        running = asyncio.create_task(replayed(site, shop, telling, Plan(shop.topic, TO_THE_END)))
        await eventually(lambda: telling.seen, 20, "the replay does not start")
        shop.gate.set()
        assert await running == 0
    assert shop.ran == Counter({"slow": 1})
    assert telling.report["outcomes"] == {"replayed": 1}


async def test_too_many_failures_stop_it(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, [b"no json", b"no json", *orders([f"k{n}" for n in range(500)])])
    plan = Plan(shop.topic, TO_THE_END, max_failures=1, rate=50)
    assert await replayed(site, shop, telling, plan) == 3
    assert "failed" in telling.report["why"]
    assert telling.report["dead_letters"] == {"undecodable": 2}
    assert sum(shop.ran.values()) < 500


async def test_attempts_that_fail_are_retried_and_end_as_dead_letters(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, [body("good"), body("bad", amount=666)])
    assert await replayed(site, shop, telling, Plan(shop.topic, TO_THE_END)) == 2
    assert shop.ran == Counter({"good": 1, "bad": 2})
    assert telling.report["dead_letters"] == {"retries_exhausted": 1}
    assert telling.report["examples"] == {"retries_exhausted": [f"{shop.topic}/0@1"]}


async def test_results_are_published_again_only_if_wanted(site: Site, telling: Telling) -> None:
    results = site.topic()
    shop = Shop(site.topic(), result_topic=results)
    site.produce(shop.topic, orders(["a", "b"]))
    await site.run(shop.registry)
    site.produce(shop.topic, orders(["c"]))
    assert len(site.read(results)) == 2
    assert await replayed(site, shop, telling, Plan(shop.topic, TO_THE_END, results=False)) == 0
    assert [seen.value for seen in site.read(results)][2:] == [b'{"id":"c"}']
    assert await replayed(site, shop, telling, Plan(shop.topic, TO_THE_END)) == 0
    assert len(site.read(results)) == 6


async def test_what_was_done_and_forgotten_is_refused_unless_told_otherwise(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, orders([f"k{n}" for n in range(4)]))
    async with site.worker(shop.registry, ONCEBOX_SAMPLE_EVERY="1s"):
        await site.drained(shop.topic)
        sampled = "SELECT 1 FROM oncebox.samples WHERE watermark = 4"
        await eventually(lambda: site.fetch(sampled), 20, "no sample of the watermark", every=0.1)
    await site.fetch("UPDATE oncebox.samples SET at = at - interval '31 days'")
    await site.fetch("DELETE FROM oncebox.entries WHERE key IN ('k0', 'k1')")
    site.produce(shop.topic, orders(["new"]))
    site.put_group(shop.topic, {0: 5})
    told = await foretold(site, shop, telling, Plan(shop.topic, EVERYTHING))
    assert told["classes"] == {"beyond_ttl": 2, "replay": 2, "run": 1}
    assert told["examples"] == {"beyond_ttl": [f"{shop.topic}/0@0", f"{shop.topic}/0@1"]}
    assert await replayed(site, shop, telling) == 2
    assert telling.report["dead_letters"] == {"beyond_ttl": 2}
    assert shop.ran == Counter({"k0": 1, "k1": 1, "k2": 1, "k3": 1, "new": 1})
    plan = Plan(shop.topic, EVERYTHING, run_beyond_ttl=True, reason="nothing was done then")
    assert await replayed(site, shop, telling, plan) == 0
    assert shop.ran["k0"] == shop.ran["k1"] == 2
    [audit] = await site.fetch("SELECT action, reason FROM oncebox.audit")
    assert (audit["action"], audit["reason"]) == ("run beyond ttl", "nothing was done then")
