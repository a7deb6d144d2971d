"""A real worker is scraped while it works: every metric of the table has data, and there is no other."""

import asyncio
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.observe.scraping import OPENMETRICS, Scraped
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Context, Effect, NotExecuted, Registry, Reject, Retries
from worker.observe.table import METRICS, Metric

pytestmark = pytest.mark.stories


class Message(BaseModel):
    """What the tests send."""

    id: str
    act: str = "return"


def registry_for(topic: str, started: list[str]) -> Registry:
    registry = Registry()

    @registry.handler(topic, scope="payments", key="id", retries=Retries(3, first="100ms", most="100ms"))
    async def work(message: Message, context: Context, effect: Effect) -> str:
        started.append(message.id)
        match message.act:
            case "reject":
                raise Reject("no", code="no")
            case "retry" if context.attempt == 1:
                raise NotExecuted("not yet")
        async with effect:
            if message.act == "doubt":
                raise RuntimeError("nobody knows")
        return message.id

    return registry


async def test_what_a_worker_did_is_counted_under_the_names_of_the_table(
    site: Site, redis_url: str, port: Callable[[], int]
) -> None:
    topic = site.topic(2)
    started: list[str] = []
    plain = [Sent(message(f"k{n}"), partition=0) for n in range(40)]
    async with site.worker(registry_for(topic, started), ONCEBOX_HTTP_PORT="0", REDIS_URL=redis_url):
        site.produce(topic, plain)
        await site.drained(topic)
        site.produce(topic, [Sent(r.value, partition=1) for r in plain])  # duplicates
        site.produce(topic, [Sent(message("r", act="reject")), Sent(message("k1", act="reject"))])  # one is a misuse
        site.produce(topic, [Sent(message("again", act="retry")), Sent(message("doubt", act="doubt"))])
        site.produce(topic, [b"no json", b"{}"])
        await site.drained(topic)
        # Figures of the database are looked up every second: those of the first sample come with the next look.
        await eventually(lambda: _has_data(port(), "oncebox_feed_behind_seconds"), 20, "feeds are not shown", every=0.2)
        scraped = await asyncio.to_thread(Scraped, port())
        openly = await asyncio.to_thread(Scraped, port(), OPENMETRICS)

    def records(outcome: str) -> float:
        return scraped.value("oncebox_records_total", topic=topic, outcome=outcome)

    assert (records("executed"), records("rejected"), records("replayed")) == (41, 1, 40)
    assert (records("misuse"), records("parked"), records("dead_lettered")) == (1, 1, 2)
    assert scraped.value("oncebox_duplicates_absorbed_total", operation="payments/work") == 40
    claims = scraped.by("oncebox_claims_total", "result")
    assert (claims["created"], claims["retried"], claims["misuse"], claims["unknown"]) == (43, 1, 1, 1)
    assert claims["replay"] == 40
    reasons = scraped.by("oncebox_dead_letters_total", "reason")
    assert reasons == {"misuse": 1, "undecodable": 1, "invalid_payload": 1}
    assert scraped.value("oncebox_process_duration_seconds_count") == len(started) == 44
    assert scraped.value("oncebox_attempts_failed_total") == 1
    assert scraped.value("oncebox_doubts_total") == 1
    assert scraped.value("oncebox_partitions_assigned") == 2
    assert scraped.value("oncebox_consumer_lag_records") == 0
    assert scraped.value("oncebox_store_duration_seconds_count", store="postgres", op="claim") >= 2
    assert scraped.value("oncebox_record_delay_seconds_count", topic=topic) >= 3
    assert scraped.value("oncebox_rebalances_total") == 1
    assert scraped.value("oncebox_ready") == 1
    assert scraped.value("oncebox_sessions_alive", role="run") >= 1
    assert {family.name for family in scraped.families if family.samples} == {_text_name(metric) for metric in METRICS}
    assert {family.name for family in openly.families} == {metric.family for metric in METRICS}


async def _has_data(port: int, name: str) -> bool:
    scraped = await asyncio.to_thread(Scraped, port)
    return any(family.samples for family in scraped.families if family.name == name)


def _text_name(metric: Metric) -> str:
    """What the reader of the text form calls a family: it has no type of its own for information."""
    return metric.name if metric.type == "info" else metric.family
