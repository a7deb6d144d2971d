"""A sweep: the janitor as a process of its own, with and without handlers."""

import asyncio
from collections import Counter
from datetime import timedelta

from tests.engine.site import Site
from tests.engine.test_outage import Message, message
from tests.waiting import eventually
from worker import NotExecuted, Registry, Retries
from worker.app.sweeping import sweep_on, sweep_once


async def test_a_sweep_with_handlers_runs_what_is_due(site: Site) -> None:
    name, ran = site.topic(), Counter[str]()
    registry = Registry()

    @registry.handler(name, scope="jobs", key="id", retries=Retries(attempts=3, first="5m", most="5m"))
    async def work(message: Message) -> None:
        ran[message.id] += 1
        if ran[message.id] == 1:
            raise NotExecuted("not yet")

    site.produce(name, [message(f"k{n}") for n in range(3)])
    await site.run(registry)
    assert ran == Counter({f"k{n}": 1 for n in range(3)})
    assert await site.count("parked") == 3
    swept = await sweep_once(site.settings(), registry, stop=asyncio.Event())
    assert (swept.parked_tried, ran.total()) == (0, 3), "nothing is due"
    for table in ("parked", "entries"):
        await site.fetch(f"UPDATE oncebox.{table} SET due_at = due_at - interval '10 minutes'")
    swept = await sweep_once(site.settings(), registry, stop=asyncio.Event())
    assert swept.parked_tried == 3
    assert ran == Counter({f"k{n}": 2 for n in range(3)})
    assert set((await site.states()).values()) == {"completed"}
    assert await site.count("parked") == 0
    roles = await site.fetch("SELECT role FROM oncebox.sessions ORDER BY id")
    assert [row[0] for row in roles] == ["run", "sweep", "sweep"]


async def test_a_sweep_that_goes_on_settles_and_prunes_until_it_is_told_to_stop(site: Site) -> None:
    await leave_claims(site)
    stop = asyncio.Event()
    sweeping = asyncio.create_task(sweep_on(site.settings(ONCEBOX_PRUNE_EVERY="1s"), None, stop=stop))
    await eventually(lambda: site.fetch("SELECT 1 FROM oncebox.doubts"), 20, "nothing was settled", every=0.1)
    await eventually(lambda: site.fetch("SELECT 1 FROM oncebox.duties WHERE duty = 'prune'"), 20, every=0.1)
    stop.set()
    await asyncio.wait_for(sweeping, 10)
    assert await site.fetch("SELECT 1 FROM oncebox.sessions WHERE role = 'sweep' AND ended_at IS NOT NULL")


async def test_a_sweep_that_is_interrupted_says_so_and_ends_its_session(site: Site) -> None:
    await leave_claims(site)
    stop = asyncio.Event()
    sweeping = asyncio.create_task(sweep_once(site.settings(), None, stop=stop))
    await eventually(lambda: site.fetch("SELECT 1 FROM oncebox.sessions WHERE role = 'sweep'"), 20, every=0.05)
    stop.set()
    swept = await asyncio.wait_for(sweeping, 10)
    assert swept.interrupted
    assert swept.sessions_ended == 0
    assert await site.fetch("SELECT 1 FROM oncebox.sessions WHERE role = 'sweep' AND ended_at IS NOT NULL")


async def leave_claims(site: Site) -> None:
    """What a worker leaves that was killed an hour ago: a lapsed session with one open claim."""
    await site.fetch(
        "WITH o AS (INSERT INTO oncebox.operations (scope, operation, kind, identity, ttl, quiet)"
        "   VALUES ('jobs', 'work', 1, 'v1', interval '30 days', interval '1 minute') RETURNING id),"
        " s AS (INSERT INTO oncebox.sessions (role, host, pid, version, lease, lease_until)"
        "   VALUES ('run', 'gone', 1, '0', interval '3 s', clock_timestamp() - $1::interval) RETURNING id),"
        " e AS (INSERT INTO oncebox.entries (id, fence, expires_at, operation, state, kind, format)"
        "   SELECT gen_random_uuid(), 7, clock_timestamp() + interval '29 days', o.id, 1, 1, 1 FROM o RETURNING id)"
        " INSERT INTO oncebox.open_claims (fence, session, ids) SELECT 7, s.id, ARRAY[e.id] FROM s, e",
        timedelta(hours=1),
    )
