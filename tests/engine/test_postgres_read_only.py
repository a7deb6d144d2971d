"""Postgres answers but takes no writes for a while, as after a failover: the worker waits and goes on by itself."""

import signal

import pytest

from tests.engine.load import assert_each_ran_once, message, send, starts
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually

pytestmark = pytest.mark.stories


async def set_read_only(site: Site, value: str, *, cut: bool) -> None:
    """For every new connection; `cut` also ends those that are open."""
    await site.fetch(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    await site.fetch("SELECT pg_reload_conf()")
    if cut:
        await site.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cut", [True, False], ids=["new connections", "old connections"])
async def test_a_read_only_postgres_only_delays_the_work(site_on_own_postgres: Site, cut: bool) -> None:
    site = site_on_own_postgres
    name = site.topic()
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_SECONDS": "0.05", "ONCEBOX_CONCURRENCY": "4"}
    worker = site.spawn()
    await worker.says("partitions_assigned")
    sent = send(site, name, [Sent(message(f"k{n}")) for n in range(200)])
    await eventually(lambda: len(starts(site)) > 20, 20, "no load", every=0.05)
    try:
        await set_read_only(site, "on", cut=cut)
        await worker.says("session_renewal_failed", 15)
    finally:
        await set_read_only(site, "off", cut=False)
    await site.drained(name)
    await site.quiet()
    assert worker.popen.poll() is None
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    await assert_each_ran_once(site, sent)
