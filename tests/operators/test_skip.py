"""One record becomes a dead letter `skipped`, wherever it is; the others run."""

import asyncio
import json
from collections import Counter

import pytest
from pydantic import BaseModel

from tests.cli.command import complaint
from tests.engine.site import Site
from tests.engine.test_unreadable import produce_unreadable
from tests.operators.conftest import Command
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import NotExecuted, Registry, Retries
from worker.errors import WrongState
from worker.ledger.desk import open_desk
from worker.ledger.orders import OrderBook
from worker.ledger.rulings import By
from worker.rules.orders import Pause, Skip

BY = By("ann@desk", "it breaks the printer")


class Message(BaseModel):
    """What the tests send."""

    id: str


class Shop:
    """A handler that notes what it ran; `bad` fails, again and again."""

    def __init__(self, site: Site) -> None:
        self.topic = site.topic()
        self.ran: Counter[str] = Counter()
        self.through = asyncio.Event()
        self.registry = Registry()

        @self.registry.handler(self.topic, scope="payments", key="id", retries=Retries(1000, first="1s", most="1s"))
        async def charge(message: Message) -> None:
            self.ran[message.id] += 1
            if message.id == "bad":
                raise NotExecuted("the printer is broken")
            if message.id == "slow":
                await self.through.wait()


def sent(*ids: str) -> list[Sent]:
    """Records of one Kafka key: each waits for the one ahead."""
    return [Sent(json.dumps({"id": id_}).encode(), key=b"k") for id_ in ids]


async def skip(site: Site, topic: str, offset: int) -> None:
    async with open_desk(site.settings().database) as desk:
        await OrderBook(desk).skip(site.group, Skip(topic, 0, offset, BY.reason), BY)


async def all_done(site: Site) -> bool:
    return not await site.fetch("SELECT 1 FROM oncebox.skips WHERE done_at IS NULL")


async def test_a_record_that_was_not_read_yet_never_starts(site: Site) -> None:
    shop = Shop(site)
    site.produce(shop.topic, sent("a", "bad", "b"))
    await skip(site, shop.topic, 1)
    async with site.worker(shop.registry):
        await site.drained(shop.topic)
        await eventually(lambda: all_done(site), 10, "nobody said that it is done")
    assert shop.ran == {"a": 1, "b": 1}
    [letter] = site.dead_letters(shop.topic)
    assert (letter.reason, letter.offset, letter.value) == ("skipped", 1, b'{"id": "bad"}')
    assert b"it breaks the printer" in (letter.about["__dlq.errors.message"] or b"")


async def test_a_record_that_waits_for_its_next_try_is_skipped_and_lets_the_next_one_run(site: Site) -> None:
    shop = Shop(site)
    site.produce(shop.topic, sent("bad", "behind"))
    async with site.worker(shop.registry):
        await eventually(lambda: shop.ran["bad"] >= 1, 20, "never tried")
        await skip(site, shop.topic, 0)
        await site.drained(shop.topic)
    assert shop.ran["behind"] == 1
    assert [letter.reason for letter in site.dead_letters(shop.topic)] == ["skipped"]
    assert (await site.states())["bad"] == "failed_retryable"


async def test_records_that_are_held_or_behind_another_are_skipped_at_once(site: Site, notices: list[str]) -> None:
    shop = Shop(site)
    site.produce(shop.topic, sent("slow", "held", "behind", "last"))
    async with site.worker(shop.registry):
        await eventually(lambda: shop.ran["slow"] == 1, 20, "never started")
        async with open_desk(site.settings().database) as desk:
            await OrderBook(desk).pause(Pause("handler", "payments/charge"), BY)
        await eventually(lambda: "paused" in notices, 10, "not paused")
        await skip(site, shop.topic, 1)
        await skip(site, shop.topic, 2)
        await eventually(lambda: len(site.dead_letters(shop.topic)) == 2, 20, "not skipped while held", every=0.2)
        shop.through.set()
        async with open_desk(site.settings().database) as desk:
            await OrderBook(desk).resume(Pause("handler", "payments/charge"), BY)
        await site.drained(shop.topic)
    assert shop.ran == {"slow": 1, "last": 1}


async def test_a_record_whose_handler_runs_ends_as_its_handler_ends(site: Site, notices: list[str]) -> None:
    shop = Shop(site)
    site.produce(shop.topic, sent("slow", "behind"))
    async with site.worker(shop.registry):
        await eventually(lambda: shop.ran["slow"] == 1, 20, "never started")
        await skip(site, shop.topic, 0)
        await skip(site, shop.topic, 1)
        await eventually(lambda: site.dead_letters(shop.topic), 10, "the one behind was not skipped", every=0.1)
        shop.through.set()
        await site.drained(shop.topic)
        await eventually(lambda: all_done(site), 10, "nobody said that it is done")
    assert shop.ran == {"slow": 1}
    assert [letter.offset for letter in site.dead_letters(shop.topic)] == [1]
    assert (await site.states())["slow"] == "completed"


async def test_a_record_that_would_be_parked_is_skipped_instead(site: Site) -> None:
    """Parked, its offset would be committed, the skip would count as done, and the record would run later."""
    shop = Shop(site)
    site.produce(shop.topic, sent("slow", "slow"))
    async with site.worker(shop.registry, ONCEBOX_HOLD="2s"):
        await eventually(lambda: shop.ran["slow"] == 1, 20, "never started")
        await skip(site, shop.topic, 1)
        await eventually(lambda: site.dead_letters(shop.topic), 15, "not skipped", every=0.2)
        shop.through.set()
        await site.drained(shop.topic)
    assert [letter.offset for letter in site.dead_letters(shop.topic)] == [1]
    assert await site.count("parked") == 0


async def test_a_skip_is_asked_for_once(site: Site) -> None:
    topic = site.topic()
    await skip(site, topic, 7)
    with pytest.raises(WrongState, match="to be skipped already, not done yet, by ann@desk: it breaks the printer"):
        await skip(site, topic, 7)
    assert await site.count("audit") == 1


async def test_skipping_by_command_is_refused_for_what_is_finished_or_not_there(site: Site, command: Command) -> None:
    shop = Shop(site)
    site.produce(shop.topic, sent("a", "b"))
    await site.run(shop.registry)
    site.produce(shop.topic, sent("bad"))
    finished = complaint(await command("skip", shop.topic, "0", "1", "--reason", "x"), 1)
    assert f"{shop.topic}/0@1 is finished: group {site.group} has committed 2" in finished
    assert "the log holds 0..2" in complaint(await command("skip", shop.topic, "0", "3", "--reason", "x"), 64)
    assert "there is no partition 5" in complaint(await command("skip", shop.topic, "5", "3", "--reason", "x"), 64)
    assert await site.count("skips") == await site.count("audit") == 0
    done = await command("skip", shop.topic, "0", "2", "--reason", "it breaks the printer", "--json")
    assert json.loads(done.output)["new_state"] == "skipped"
    await site.run(shop.registry)
    assert [letter.reason for letter in site.dead_letters(shop.topic)] == ["skipped"]
    rows = await site.fetch("SELECT action, subject, reason, new_state FROM oncebox.audit")
    assert [tuple(r) for r in rows] == [("skip", f"record {shop.topic}/0@2", "it breaks the printer", "skipped")]


async def test_a_partition_that_is_held_by_an_unreadable_record_goes_on_where_the_operator_says(
    site: Site, command: Command, notices: list[str]
) -> None:
    shop = Shop(site)
    site.produce(shop.topic, sent("before"))
    await produce_unreadable(site, shop.topic, partition=0)
    site.produce(shop.topic, sent("given up", "behind"))
    async with site.worker(shop.registry):
        await eventually(lambda: "partition_held" in notices, 20, "not held")
        await site.fetch("UPDATE oncebox.feeds SET held_since = clock_timestamp(), held_why = 'it cannot be read'")
    below = complaint(await command("skip", shop.topic, "0", "0", "--reason", "x"), 1)
    assert "is held (it cannot be read) and cannot go on at 0: the log is 0..4" in below
    done = await command("skip", shop.topic, "0", "3", "--reason", "nobody can read it")
    assert f"{shop.topic}/0 is held, and will be read on from 3" in done.output
    async with site.worker(shop.registry):
        await site.drained(shop.topic)
        await eventually(lambda: all_done(site), 10, "nobody said that it is done")
    assert shop.ran == {"before": 1, "behind": 1}
    assert site.dead_letters(shop.topic) == []
    assert await site.fetch("SELECT 1 FROM oncebox.feeds WHERE held_since IS NOT NULL") == []
    [row] = await site.fetch("SELECT subject, old_state, new_state FROM oncebox.audit")
    assert tuple(row) == (f"partition {shop.topic}/0", "held", "read on from 3")
