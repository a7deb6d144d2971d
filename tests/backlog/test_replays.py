"""A replay runs what is missing, once, and answers the rest from results; it says so beforehand."""

from collections import Counter

from tests.backlog.shop import EVERYTHING, TO_THE_END, Shop, body, foretold, orders, replayed
from tests.backlog.telling import Telling
from tests.engine.site import Site
from tests.stack.client import Sent
from worker.app.choosing import Plan
from worker.rules.windows import Window


async def test_what_is_missing_runs_once_and_what_is_done_is_replayed(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic(2))
    done = [f"done-{n}" for n in range(30)]
    missing = [f"missing-{n}" for n in range(20)]
    site.produce(shop.topic, orders(done))
    await site.run(shop.registry)
    site.produce(shop.topic, orders([*done, *missing, *missing]))
    assert await replayed(site, shop, telling, Plan(shop.topic, TO_THE_END)) == 0
    assert shop.ran == Counter([*done, *missing])
    assert telling.report["outcomes"] == {"executed": 20, "replayed": 80}
    assert telling.report["done"] == telling.report["total"] == 100
    assert site.committed_offsets(shop.topic) != {}, "the live group's own place"


async def test_the_dry_run_says_what_the_run_then_does(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic(2))
    site.produce(shop.topic, orders([f"done-{n}" for n in range(10)]))
    await site.run(shop.registry)
    mixed = [
        *orders([f"done-{n}" for n in range(10)]),
        *orders([f"new-{n}" for n in range(7)]),
        *orders(["new-1", "new-2"]),
        body("done-3", amount=99),
        body("new-4", amount=98),
        body("no", amount=-5),
        body("bill", tenant="umbrella"),
        b"{no json",
        b'{"tenant": "acme"}',
        b'{"id": "x"}',
    ]
    site.produce(shop.topic, mixed)
    plan = Plan(shop.topic, TO_THE_END, rate=100)
    before = await site.count("entries")
    told = await foretold(site, shop, telling, plan)
    assert await site.count("entries") == before
    assert await site.count("jobs") == 0
    assert told["estimate_seconds"] == round(told["classes"]["run"] / 100, 1)
    assert {line["tenant"] for line in told["handlers"]} == {"acme", "umbrella", None}
    assert len(told["examples"]["misuse"]) == 2
    assert await replayed(site, shop, telling, Plan(shop.topic, TO_THE_END)) == 2
    outcomes, letters = telling.report["outcomes"], telling.report["dead_letters"]
    reasons = {name: n for name, n in told["classes"].items() if name not in ("run", "replay")}
    assert reasons == letters == {"misuse": 2, "undecodable": 1, "invalid_payload": 1, "missing_tenant": 1}
    assert outcomes["executed"] + outcomes["rejected"] == told["classes"]["run"] == 9
    assert outcomes["replayed"] == told["classes"]["replay"] == 22


async def test_it_does_not_run_ahead_of_the_live_group(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic(2))
    site.produce(shop.topic, orders([f"k{n}" for n in range(20)]))
    site.put_group(shop.topic, {0: 4, 1: 3})
    assert await replayed(site, shop, telling, Plan(shop.topic, EVERYTHING)) == 0
    assert sum(shop.ran.values()) == 7
    assert site.committed_offsets(shop.topic) == {0: 4, 1: 3}


async def test_offsets_and_partitions_choose(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic(2))
    site.produce(shop.topic, [Sent(body(f"p{p}-{n}"), partition=p) for n in range(5) for p in (0, 1)])
    plan = Plan(shop.topic, Window(from_offset=1, to_offset=3, partitions=(1,)))
    assert await replayed(site, shop, telling, plan) == 0
    assert set(shop.ran) == {"p1-1", "p1-2"}


async def test_times_choose_record_by_record_in_whatever_order_they_are(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    times = [1_000, 9_000, 5_000, 2_000, 6_000, 7_000, 3_000]
    site.produce(shop.topic, [Sent(body(f"at-{ms}"), timestamp_ms=ms) for ms in times])
    assert await replayed(site, shop, telling, Plan(shop.topic, Window(since=5_000, until=7_000))) == 0
    assert set(shop.ran) == {"at-5000", "at-6000"}
    assert telling.report["outcomes"] == {"executed": 2, "left_out": 4}


async def test_tenants_choose(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, [body(f"{t}-{n}", tenant=t) for n in range(3) for t in ("acme", "umbrella", "wonka")])
    assert await replayed(site, shop, telling, Plan(shop.topic, TO_THE_END, tenants=("acme", "wonka"))) == 0
    assert set(shop.ran) == {f"{t}-{n}" for n in range(3) for t in ("acme", "wonka")}
    assert await replayed(site, shop, telling, Plan(shop.topic, TO_THE_END, exclude_tenants=("umbrella",))) == 0
    assert not any(key.startswith("umbrella") for key in shop.ran)
    told = await foretold(site, shop, telling, Plan(shop.topic, TO_THE_END, tenants=("umbrella",)))
    assert told["classes"] == {"run": 3}
