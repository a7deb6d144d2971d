"""Two workers, and every key several times on partitions of both: one run per key, one answer per record."""

import os
import signal
from collections import Counter, defaultdict
from hashlib import sha256

import pytest

from tests.engine.load import assert_each_ran_once, duplicated, send
from tests.engine.site import Site

pytestmark = pytest.mark.stories
KEYS = int(os.environ.get("ONCEBOX_TEST_KEYS", "10000"))
PARTITIONS = 4


@pytest.mark.timeout(300)
async def test_duplicates_on_partitions_of_two_workers_run_once_and_get_the_same_bytes(site: Site) -> None:
    name, results = site.topic(PARTITIONS), site.topic(2, letters=False)
    site.extra |= {"VICTIM_TOPICS": f"external={name}", "VICTIM_RESULTS": results}
    workers = [site.spawn(), site.spawn()]
    for worker in workers:
        await worker.says("partitions_assigned")
    sent = send(site, name, duplicated([f"k{n}" for n in range(KEYS)], PARTITIONS, copies=2))
    await site.drained(name, within=200)
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0, worker.tail()

    await assert_each_ran_once(site, sent)
    assert {w["pid"] for w in site.witness()} == {worker.popen.pid for worker in workers}, "both took part"
    assert not site.dead_letters(name)
    assert await site.count("parked") == 0

    bodies: dict[bytes, set[bytes]] = defaultdict(set)
    sources, first_answers = Counter[bytes](), Counter[bytes]()
    for seen in site.read(results):
        headers = dict(seen.headers)
        key, source = headers["oncebox.key"], headers["oncebox.source"]
        assert key is not None
        assert source is not None
        bodies[key].add(sha256(seen.value or b"").digest())
        sources[source] += 1
        first_answers[key] += "Idempotent-Replayed" not in headers
    assert sources == Counter(f"{name}/{p}@{o}".encode() for p, o in sent), "one answer per record"
    assert all(len(digests) == 1 for digests in bodies.values()), "byte-identical per key"
    assert set(first_answers.values()) == {1}
    assert len(bodies) == KEYS
