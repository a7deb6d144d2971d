"""Dead letters are listed whoever wrote them, redriven through the claim path, and discarded; each once, audited."""

import asyncio
import json
from collections import Counter
from typing import Any

from tests.backlog.process import Desk
from tests.backlog.shop import Shop, body
from tests.backlog.telling import Telling
from tests.cli.command import complaint
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker.app.redriving import Choice, Errand, Terms, forecast_redrive, redrive
from worker.kafka.reader import open_reader
from worker.observe.logs import notice
from worker.rules.windows import Window

REGISTRY = """
from worker import Registry
registry = Registry()

@registry.handler("{topic}", scope="jobs", key="id", tenant="tenant", kind="repeatable", retries=2)
async def order(message: dict) -> None:
    if message["amount"] == 666:
        raise RuntimeError("never works")
"""


async def redriven(
    site: Site, shop: Shop, telling: Telling, topic: str | None = None, choice: Choice | None = None, **terms: Any
) -> tuple[int, dict[str, Any]]:
    """What a dry run says, then the redrive itself: its exit code."""
    settings = site.settings()
    async with open_reader(settings.kafka, topic or f"dlq.{shop.topic}", notice) as reader:
        spans = await reader.spans(Window())
        agreed = Terms("test", "because", **terms)
        errand = Errand(settings, shop.registry, reader, spans, choice or Choice(), agreed)
        told = await forecast_redrive(errand)
        running = redrive(errand, total=told["records"], show=telling, stop=asyncio.Event())
        return await asyncio.wait_for(running, 60), told


async def test_a_redrive_starts_attempts_anew_and_is_not_listed_again(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, [Sent(body("bad", amount=666), key=b"k", headers=[("trace", b"abc"), ("none", None)])])
    await site.run(shop.registry)
    [first] = site.dead_letters(shop.topic)
    assert first.reason == "retries_exhausted"
    assert shop.ran == Counter({"bad": 2})
    code, told = await redriven(site, shop, telling)
    assert (code, told["classes"]) == (2, {"run": 1}), "it fails again: attempts were counted from none"
    assert shop.ran == Counter({"bad": 4})
    second = site.dead_letters(shop.topic)[1]
    assert second.about["oncebox.redrives"] == b"1"
    assert (second.key, second.value, second.headers) == (first.key, first.value, first.headers)
    assert second.offset == first.offset, "where it came from is still known"
    assert telling.report["dead_letters"] == {"retries_exhausted": 1}
    _, told = await redriven(site, shop, telling)
    assert told["records"] == 1, "only the new letter is left"
    acts = await site.fetch("SELECT action, subject, reason, old_state FROM oncebox.audit ORDER BY id")
    assert [(a["action"], a["subject"], a["old_state"]) for a in acts] == [
        ("redrive", f"dlq.{shop.topic}/0@{n}", "retries_exhausted") for n in (0, 1)
    ]
    assert len(site.read(shop.topic)) == 1, "nothing is written to the source topic"


async def test_redrives_are_capped(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, [b"no json"])
    await site.run(shop.registry)
    # It names no key, but its handler is known by its topic: it ends as a dead letter again, one more each time.
    for number in (1, 2):
        code, told = await redriven(site, shop, telling, cap=2)
        assert (code, told["classes"]) == (2, {"undecodable": 1})
        assert site.dead_letters(shop.topic)[-1].about["oncebox.redrives"] == str(number).encode()
    code, told = await redriven(site, shop, telling, cap=2)
    assert told["classes"] == {"capped": 1}
    assert telling.report["refused"] == {"capped": 1}
    assert len(site.dead_letters(shop.topic)) == 3


async def test_a_key_that_was_used_otherwise_meanwhile_is_misuse_again(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, [body("k", amount=666)])
    await site.run(shop.registry)
    await site.fetch("DELETE FROM oncebox.entries")
    site.produce(shop.topic, [body("k", amount=1)])
    await site.run(shop.registry)
    code, told = await redriven(site, shop, telling)
    assert (code, told["classes"]) == (2, {"misuse": 1}), "the same key, another payload"
    assert telling.report["outcomes"] == {"misuse": 1}


async def test_letters_of_others_run_with_what_they_were(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    foreign = site.topic(letters=False)
    original = [("trace", b"abc")]
    spring = [
        ("kafka_dlt-original-topic", shop.topic.encode()),
        ("kafka_dlt-original-partition", (0).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", (41).to_bytes(8, "big")),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
    ]
    connect = [
        ("__connect.errors.topic", shop.topic.encode()),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"42"),
    ]
    site.produce(
        foreign,
        [
            Sent(body("spring"), headers=[*original, *spring]),
            Sent(body("connect"), headers=[*original, *connect]),
            Sent(body("ad-hoc"), headers=[*original, ("x-original-topic", shop.topic.encode())]),
            Sent(body("nobody's"), headers=original),
        ],
    )
    code, told = await redriven(site, shop, telling, foreign)
    assert (code, told["classes"]) == (2, {"run": 2, "no_handler": 2})
    assert set(shop.ran) == {"spring", "connect"}
    code, told = await redriven(site, shop, telling, foreign, handler="jobs/order")
    assert (code, told["classes"]) == (0, {"run": 2})
    assert set(shop.ran) == {"spring", "connect", "ad-hoc", "nobody's"}
    await eventually(lambda: none_left(site), 10, "finished records stay parked")


async def none_left(site: Site) -> bool:
    return await site.count("parked") == 0


async def test_filters_choose_letters(site: Site, telling: Telling) -> None:
    shop = Shop(site.topic())
    site.produce(shop.topic, [b"no json", body("bad", amount=666), body("worse", amount=666)])
    await site.run(shop.registry)
    _, told = await redriven(site, shop, telling, choice=Choice(key=b"bad"))
    assert (told["records"], shop.ran["bad"], shop.ran["worse"]) == (1, 4, 2)
    _, told = await redriven(site, shop, telling, choice=Choice(reasons=("undecodable",)))
    assert told["classes"] == {"undecodable": 1}
    _, told = await redriven(site, shop, telling, choice=Choice(handler="elsewhere"))
    assert told["records"] == 0


async def test_the_commands_list_show_redrive_and_discard(site: Site) -> None:
    topic = site.topic()
    desk = Desk(site, REGISTRY.format(topic=topic))
    shop = Shop(topic)
    site.produce(topic, [b"no json", body("bad", amount=666)])
    await site.run(shop.registry)
    listed = await desk.type("dlq", "list", topic, "--json")
    letters = json.loads(listed.output)["letters"]
    assert [letter["reason"] for letter in letters] == ["undecodable", "retries_exhausted"]
    assert letters[1] | {"key": "bad", "tenant": "acme", "handler": "jobs/order", "redrives": 0} == letters[1]
    assert "retries_exhausted" in (await desk.type("dlq", "list", topic, "--why", "retries_exhausted")).output
    shown = (await desk.type("dlq", "show", f"dlq.{topic}", letters[1]["at"])).output
    assert "never works" in shown or "attempts failed" in shown
    assert '"amount": 666' in shown
    assert "Nobody is here" in complaint(
        await desk.type("dlq", "discard", topic, "--reason", "noise", "--why", "undecodable"), 64
    )
    gone = await desk.type("dlq", "discard", topic, "--reason", "noise", "--why", "undecodable", "--yes")
    assert gone.output == "discarded 1\n", gone
    left = json.loads((await desk.type("dlq", "list", topic, "--json")).output)["letters"]
    assert [letter["reason"] for letter in left] == ["retries_exhausted"]
    every = json.loads((await desk.type("dlq", "list", topic, "--json", "--all")).output)["letters"]
    assert [letter["handled"] for letter in every] == ["discarded", None]
    [act] = await site.fetch("SELECT action, subject, reason FROM oncebox.audit")
    assert tuple(act) == ("discard", f"dlq.{topic}/0@{letters[0]['at'][2:]}", "noise")
    told = await desk.type("dlq", "redrive", topic, "shop", "--dry-run")
    assert '"run":1' in told.output, told
    done = await desk.type("dlq", "redrive", topic, "shop", "--reason", "repaired", "--yes", "--json")
    assert done.code == 2, done
    assert '"retries_exhausted":1' in done.output
