"""`oncebox sweep` and `oncebox feeds` as an operator or cron calls them."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.cli.command import Answer, complaint, oncebox
from tests.engine.conftest import opened
from tests.engine.site import Site
from tests.engine.test_outage import catch_up, registry_for
from tests.engine.test_sweep import leave_claims

GONE = "UPDATE oncebox.samples SET at = at - interval '1 day'"


@pytest_asyncio.fixture
async def site(kafka: str, database_url: str, schema: str, group: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened(Site(kafka, database_url, schema, group, tmp_path)) as made:
        yield made


def call(site: Site, *words: str, **changes: str) -> Answer:
    environment = {k: v for k, v in site.environment.items() if k != "SITE_FOLDER"}
    return oncebox(*words, cwd=site.folder, **{**environment, "ONCEBOX_ACTOR": "cron", **changes})


async def test_without_handlers_it_prunes_waits_a_lease_ends_and_settles(site: Site) -> None:
    await leave_claims(site)
    answer = call(site, "sweep", "--once", "--json")
    assert answer.code == 0, answer
    swept = json.loads(answer.output)
    assert (swept["ok"], swept["sessions_ended"], swept["claims_settled"]) == (True, 1, {"unknown": 1})
    (pruned,) = swept["pruned"]
    assert (pruned["operation"], pruned["entries"], pruned["horizon"]) == ("jobs/work", 0, None)
    assert "no feed is registered" in pruned["holds"][0]["why"]
    assert await site.count("doubts") == 1


async def test_pruning_alone_does_not_wait_and_tells_people_what_holds_it_back(site: Site) -> None:
    await leave_claims(site)
    answer = call(site, "sweep", "--prune-only")
    assert answer.code == 0, answer
    assert "jobs/work" in answer.output
    assert "no feed is registered" in answer.output
    assert await site.count("open_claims") == 1, "nothing was settled"


async def test_with_kafka_away_nothing_is_pruned_and_the_exit_code_says_so(site: Site) -> None:
    await catch_up(site, registry_for(name := site.topic(), Counter()), name)
    await site.fetch(
        "INSERT INTO oncebox.entries (id, fence, expires_at, operation, state, kind, format, result_status)"
        " SELECT gen_random_uuid(), 1, now() - interval '3 days', id, 2, 1, 1, 1 FROM oncebox.operations"
    )
    answer = call(site, "sweep", "--once", "--json", KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert answer.code == 69, answer
    swept = json.loads(answer.output)
    assert not swept["ok"]
    assert swept["pruned"][0]["entries"] == 0
    assert await site.count("entries") == 1
    assert call(site, "sweep", "--prune-only").code == 0
    assert await site.count("entries") == 0


async def test_feeds_are_listed_and_those_of_a_group_that_is_gone_are_retired(site: Site) -> None:
    name = site.topic()
    await catch_up(site, registry_for(name, Counter()), name)
    (listed,) = json.loads(call(site, "feeds", "list", "--json").output)
    assert (listed["group"], listed["topic"], listed["partition"]) == (site.group, name, 0)
    assert (listed["operations"], listed["watermark"], listed["end"]) == (["kept/work"], 0, 0)
    assert listed["log_time"] == listed["sampled_at"]
    assert (listed["state"], listed["since"], listed["why"]) == ("live", None, None)
    assert len(listed["topic_id"]) == 32
    retire = ("feeds", "retire", site.group, name)
    await site.fetch(GONE)
    assert "--yes" in complaint(call(site, *retire, "--reason", "renamed"), 64), "nobody is here to answer"
    complaint(call(site, *retire, "--yes"), 64)
    assert await site.count("audit") == 0

    answer = call(site, *retire, "--yes", "--reason", "renamed", "--json")
    assert answer.code == 0, answer
    (retired,) = json.loads(answer.output)
    assert (retired["partition"], retired["goes_on_at"]) == (0, None)
    (act,) = await site.fetch("SELECT * FROM oncebox.audit")
    assert (act["actor"], act["action"], act["subject"]) == ("cron", "feeds retire", f"feed {site.group} {name}/0")
    assert (act["reason"], act["old_state"], act["new_state"]) == ("renamed", "live", "retired")
    table = call(site, "feeds", "list").output
    assert [name in table, "kept/work" in table, "retired" in table] == [True] * 3
