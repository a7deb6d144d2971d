"""Paused records are held without a claim, nothing of them is lost, and everything else goes on."""

import asyncio
import json
from collections import Counter

import pytest
from pydantic import BaseModel

from tests.cli.command import complaint
from tests.engine.site import Site
from tests.operators.conftest import Command
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import NotExecuted, Registry, Retries
from worker.cli import main
from worker.ledger.desk import open_desk
from worker.ledger.orders import OrderBook
from worker.ledger.rulings import By
from worker.rules.orders import Pause

BY = By("ann@desk", "the gateway is being repaired")


class Message(BaseModel):
    """What the tests send."""

    id: str
    kind: str = ""


def messages(*ids: str, **more: str) -> list[bytes]:
    return [json.dumps({"id": id_, **more}).encode() for id_ in ids]


async def pause(site: Site, *pauses: Pause) -> None:
    async with open_desk(site.settings().database) as desk:
        for one in pauses:
            await OrderBook(desk).pause(one, BY)


async def resume(site: Site, *pauses: Pause) -> None:
    async with open_desk(site.settings().database) as desk:
        for one in pauses:
            await OrderBook(desk).resume(one, BY)


class Shop:
    """Two handlers on topics of their own; a charge waits until it is let through."""

    def __init__(self, site: Site) -> None:
        self.charges, self.orders = site.topic(2), site.topic()
        self.ran: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.through = asyncio.Event()
        self.through.set()
        self.registry = Registry()

        @self.registry.handler(self.charges, scope="payments", key="id", retries=Retries(9, first="1h", most="1h"))
        async def charge(message: Message) -> None:
            self.ran[message.id] += 1
            await self.through.wait()
            if message.kind == "fails once" and self.ran[message.id] == 1:
                raise NotExecuted("not yet")
            self.ended[message.id] += 1

        @self.registry.handler(self.orders, scope="jobs", key="id")
        async def order(message: Message) -> None:
            self.ran[message.id] += 1

    charge = Pause("handler", "payments/charge")


async def test_a_paused_handler_holds_its_records_without_a_claim_and_others_go_on(
    site: Site, notices: list[str]
) -> None:
    shop = Shop(site)
    await pause(site, shop.charge)
    site.produce(shop.charges, messages(*(f"c{n}" for n in range(20))))
    site.produce(shop.orders, messages("o1"))
    async with site.worker(shop.registry):
        await eventually(lambda: shop.ran["o1"] == 1, 20, "another handler must go on")
        assert "paused" in notices
        assert set(await site.states()) == {"o1"}
        await resume(site, shop.charge)
        await site.drained(shop.charges, shop.orders)
        assert "resumed" in notices
    assert all(shop.ran[f"c{n}"] == 1 for n in range(20))


async def test_what_runs_ends_and_what_is_claimed_but_not_started_is_given_back(site: Site, notices: list[str]) -> None:
    shop = Shop(site)
    shop.through.clear()
    site.produce(shop.charges, messages(*(f"c{n}" for n in range(40))))
    async with site.worker(shop.registry, ONCEBOX_CONCURRENCY="2"):
        await eventually(lambda: len(shop.ran) == 2, 20, "nothing started")
        await pause(site, shop.charge)
        await eventually(lambda: "paused" in notices, 10, "the worker did not notice")
        running = set(shop.ran)
        shop.through.set()
        await eventually(lambda: set(shop.ended) == running, 10, "what runs must end")

        async def given_back() -> bool:
            return "in_progress" not in (await site.states()).values()

        await eventually(given_back, 10, "claims that never started are kept")
        assert set(shop.ran) == running
        await resume(site, shop.charge)
        await site.drained(shop.charges)
    assert all(shop.ended[f"c{n}"] == 1 for n in range(40))


async def test_a_paused_topic_is_not_read_and_its_lag_stays(site: Site) -> None:
    shop = Shop(site)
    await pause(site, Pause("topic", shop.charges))
    site.produce(shop.charges, messages("c1"))
    site.produce(shop.orders, messages("o1"))
    async with site.worker(shop.registry):
        await eventually(lambda: shop.ran["o1"] == 1, 20, "another topic must go on")
        assert shop.ran["c1"] == 0
        assert await site.lag(shop.charges) == 1
        await resume(site, Pause("topic", shop.charges))
        await eventually(lambda: shop.ran["c1"] == 1, 10, "not resumed")


async def test_a_worker_that_is_told_to_stop_while_everything_is_held_stops_at_once(site: Site) -> None:
    shop = Shop(site)
    site.extra["ONCEBOX_DRAIN"] = "20s"
    await pause(site, shop.charge)
    site.produce(shop.charges, messages(*(f"c{n}" for n in range(500))))
    site.produce(shop.orders, messages("o1"))
    async with site.worker(shop.registry) as working:
        await eventually(lambda: shop.ran["o1"] == 1, 20, "not started")
        stopping = asyncio.get_running_loop().time()
    assert working.done()
    assert asyncio.get_running_loop().time() - stopping < 8, "the drain waited for held records"
    await resume(site, shop.charge)
    await site.run(shop.registry)
    assert all(shop.ran[f"c{n}"] == 1 for n in range(500)), "held records came again after the restart"


async def test_a_rebalance_loses_nothing_that_is_held(site: Site, notices: list[str]) -> None:
    shop = Shop(site)
    await pause(site, shop.charge)
    site.produce(
        shop.charges, [Sent(m, partition=n % 2) for n, m in enumerate(messages(*(f"c{n}" for n in range(40))))]
    )
    async with site.worker(shop.registry):
        await eventually(lambda: notices.count("partitions_assigned") == 1, 20, "not assigned")
        async with site.worker(shop.registry):
            await eventually(lambda: notices.count("partitions_assigned") >= 3, 20, "no rebalance")
            await resume(site, shop.charge)
            await site.drained(shop.charges)
    assert all(shop.ran[f"c{n}"] == 1 for n in range(40))


async def test_parked_records_of_a_paused_handler_stay_parked(site: Site, notices: list[str]) -> None:
    shop = Shop(site)
    site.produce(shop.charges, messages("later", kind="fails once"))

    async def parked() -> bool:
        return await site.count("parked") == 1

    async def long_overdue() -> bool:
        return bool(await site.fetch("SELECT 1 FROM oncebox.parked WHERE due_at < clock_timestamp() - interval '2 s'"))

    async with site.worker(shop.registry, ONCEBOX_HOLD="100ms"):
        await eventually(parked, 20, "not parked", every=0.05)
        await pause(site, shop.charge)
        await eventually(lambda: "paused" in notices, 10, "not paused")
        await site.fetch("UPDATE oncebox.entries SET due_at = clock_timestamp()")
        await site.fetch("UPDATE oncebox.parked SET due_at = clock_timestamp()")
        await eventually(long_overdue, 10, "a parked record of a paused handler was taken", every=0.1)
        assert shop.ran["later"] == 1
        await resume(site, shop.charge)
        await eventually(lambda: shop.ended["later"] == 1, 10, "not resumed")


async def test_a_lane_full_of_held_records_leaves_room_for_the_others(site: Site, notices: list[str]) -> None:
    """Both kinds on one topic: the held ones fill what their lanes may take, and the other topic is still read."""
    mixed, other, registry, ran = site.topic(3), site.topic(), Registry(), Counter[str]()

    @registry.handler(mixed, scope="payments", key="id", when={"kind": "slow"})
    async def slow(message: Message) -> None:
        ran[message.id] += 1

    @registry.handler(mixed, scope="payments", key="id", when={"kind": "quick"})
    async def quick(message: Message) -> None:
        ran[message.id] += 1

    @registry.handler(other, scope="jobs", key="id")
    async def order(message: Message) -> None:
        ran[message.id] += 1

    held = Pause("handler", "payments/slow")
    await pause(site, held)
    many = [Sent(m, partition=n % 3) for n, m in enumerate(messages(*(f"s{n}" for n in range(1500)), kind="slow"))]
    site.produce(mixed, [*(Sent(m, partition=0) for m in messages("first", kind="quick")), *many])
    async with site.worker(registry, ONCEBOX_IN_FLIGHT="64"):
        await eventually(lambda: ran["first"] == 1, 20, "a handler of the same topic must go on")
        site.produce(other, messages(*(f"o{n}" for n in range(300))))
        await eventually(lambda: sum(ran.values()) == 301, 20, "another lane stands still")
        await resume(site, held)
        await site.drained(mixed, other)
    assert all(ran[f"s{n}"] == 1 for n in range(1500))


async def test_pausing_and_resuming_by_command(site: Site, command: Command) -> None:
    await site.fetch(
        "INSERT INTO oncebox.operations (scope, operation, kind, identity, ttl, quiet)"
        " VALUES ('payments', 'charge', 1, 'v1 key=field(id)', interval '1 day', interval '1 minute')"
    )
    await site.fetch("INSERT INTO oncebox.topics (name) VALUES ('charges')")
    assert "nothing is paused" in (await command("pause", "--list")).output
    assert "did you mean payments/charge?" in complaint(await command("pause", "payments/chrge", "--reason", "x"), 64)
    done = await command("pause", "charge", "--reason", "repairs", ONCEBOX_ACTOR="ann")
    assert (done.code, done.error) == (0, "")
    again = complaint(await command("pause", "payments/charge", "--reason", "x"), 1)
    assert "handler payments/charge is paused already, by ann: repairs" in again
    [listed] = json.loads((await command("pause", "--list", "--json")).output)
    assert (listed["what"], listed["name"], listed["reason"]) == ("handler", "payments/charge", "repairs")
    assert (await command("resume", "charge", "--reason", "repaired", ONCEBOX_ACTOR="bob")).code == 0
    refused = complaint(await command("resume", "charge", "--reason", "x"), 1)
    assert "handler payments/charge is not paused" in refused
    assert "nothing is paused" in complaint(await command("resume", "--all", "--reason", "x", "--yes"), 1)
    rows = await site.fetch(
        "SELECT actor, action, subject, reason, old_state, new_state FROM oncebox.audit ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [
        ("ann", "pause", "handler payments/charge", "repairs", "running", "paused"),
        ("bob", "resume", "handler payments/charge", "repaired", "paused", "running"),
    ]


@pytest.mark.parametrize("words", [["pause"], ["resume"], ["resume", "charge", "--all"]])
def test_a_pause_of_nothing_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--reason", "x"])
    assert ended.value.code == 64
    assert capsys.readouterr().err.startswith("oncebox: ")
