"""Backends of the worker are terminated again and again, busy and idle ones: it opens new ones and goes on."""

import signal
from functools import partial

import pytest
from pydantic import BaseModel

from tests.engine.load import assert_each_ran_once, duplicated, message, send, starts
from tests.engine.site import Site
from tests.waiting import eventually
from worker import Registry, Retries, Transaction

pytestmark = pytest.mark.stories


def under_way(site: Site, wanted: int) -> bool:
    return len(starts(site)) >= wanted


@pytest.mark.timeout(60)
async def test_terminated_backends_cost_time_only(site_on_own_postgres: Site) -> None:
    site = site_on_own_postgres
    name = site.topic(2)
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_SECONDS": "0.02", "ONCEBOX_CONCURRENCY": "4"}
    worker = site.spawn()
    await worker.says("partitions_assigned")
    sent = send(site, name, duplicated([f"k{n}" for n in range(500)], 2))
    ended = 0
    for wanted in range(20, 420, 20):
        await eventually(partial(under_way, site, wanted), 20, f"stuck\n{site.tails()}", every=0.01)
        rows = await site.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'oncebox %'"
        )
        ended += len(rows)
    await site.drained(name)
    assert ended > 40
    assert worker.popen.poll() is None
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.tail()
    await assert_each_ran_once(site, sent)


class Message(BaseModel):
    """What the tests send."""

    id: str


@pytest.mark.timeout(60)
async def test_an_effect_whose_backend_was_terminated_is_done_again_not_forgotten(site_on_own_postgres: Site) -> None:
    site, registry, attempts = site_on_own_postgres, Registry(), list[int]()
    name = site.topic()
    await site.fetch("CREATE TABLE oncebox.effects (key text)")

    @registry.handler(name, scope="payments", key="id", kind="transactional", retries=Retries(5, first="50ms"))
    async def book(message: Message, transaction: Transaction) -> None:
        await transaction.execute(f'INSERT INTO "{site.schema}".effects VALUES ($1)', message.id)
        pid = await transaction.fetchval("SELECT pg_backend_pid()")
        attempts.append(pid)
        if len(attempts) == 1:
            await site.fetch("SELECT pg_terminate_backend($1, 5000)", pid)

    site.produce(name, [message("k")])
    async with site.worker(registry):
        await site.drained(name)
    assert await site.states() == {"k": "completed"}
    effects = [row["key"] for row in await site.fetch("SELECT key FROM oncebox.effects")]
    assert effects == ["k"], "effect and completion commit together or not at all"
    assert len(attempts) == 2
