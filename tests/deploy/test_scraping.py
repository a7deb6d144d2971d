"""A real Prometheus scrapes a real worker under load: every panel shows something, and the alerts watch."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.deploy.folder import DEPLOY
from tests.deploy.prometheus import program
from tests.deploy.test_names import dashboard, panels, rules
from tests.engine.site import Site
from tests.observe.scraping import get
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Effect, NotExecuted, Registry, Reject
from worker.stack.ports import answers, free_port
from worker.stack.process import Child, Command, run

FILLED = {"$__rate_interval": "5s", "$__range": "1m", "$job": ".*", "$topic": ".*", "$group": ".*"}

FALLBACK = " or on() vector(0)"
"""What a panel shows without any series; not good enough here."""


def queries() -> list[str]:
    """What Grafana would send for every panel, with All chosen everywhere."""
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    for name, value in FILLED.items():
        found = [query.replace(name, value) for query in found]
    assert not any("$" in query for query in found)
    return [query.removesuffix(FALLBACK) for query in found]


def variables() -> list[tuple[str, str]]:
    """(metric, label) of every list that the dashboard offers."""
    asked = [one["query"]["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query"]
    return [(metric, label) for query in asked for metric, label in re.findall(r"label_values\((\w+), (\w+)\)", query)]


class Prometheus:
    """Its HTTP interface."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ready(self) -> bool:
        return answers(self.port) and get(self.port, "/-/ready")[0] == 200

    def ask(self, path: str) -> Any:
        _, _, body = get(self.port, f"/api/v1/{path}")
        answer = json.loads(body)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, text: str) -> list[Any]:
        rows: list[Any] = self.ask(f"query?query={quote(text)}")["result"]
        return [row for row in rows if row["value"][1] != "NaN"]


@contextmanager
def prometheus(folder: Path, worker_port: int) -> Iterator[Prometheus]:
    """A server with our rules that scrapes one worker twice a second; it cannot outlive this process."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "1s"},
        "rule_files": [str((DEPLOY / "prometheus/rules.yml").resolve())],
        "scrape_configs": [{"job_name": "oncebox", "static_configs": [{"targets": [f"127.0.0.1:{worker_port}"]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    server = Child()
    options = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", "--log.level=warn")
    command = Command([program("prometheus"), *options, f"--web.listen-address=127.0.0.1:{port}"], {}, folder)
    try:
        with (folder / "prometheus.log").open("wb") as log:
            server.start(command, output=log)
        yield Prometheus(port)
    finally:
        server.end()


def shop(topic: str) -> Registry:
    """Handlers that end in every way there is."""
    registry = Registry()

    @registry.handler(topic, scope="payments", key="id")
    async def charge(message: dict[str, str], effect: Effect) -> str:
        match message["id"].partition("-")[0]:
            case "rejected":
                raise Reject("no", code="no")
            case "later":
                raise NotExecuted("not yet")
        async with effect:
            if message["id"].startswith("doubt"):
                raise ConnectionError("the answer was lost")
            return "paid"

    return registry


def load(turn: int) -> list[Sent | bytes]:
    """Mostly new messages and duplicates; now and then everything that can go wrong."""
    usual = [b'{"id":"ok-%d-%d"}' % (turn, n % 40) for n in range(80)]
    odd = [b'{"id":"%s-%d"}' % (word, turn) for word in (b"rejected", b"later")]
    wrong = [b'{"id":"doubt-%d"}' % turn] if turn < 3 else []
    return [*usual, *odd, *wrong, b'{"id":"ok-%d-0","other":1}' % turn, b"{}"]


async def test_a_real_prometheus_answers_every_query_of_the_dashboard_with_data(
    site: Site, redis_url: str, tmp_path: Path
) -> None:
    program("prometheus")  # fetched, if need be, before a worker waits for this thread
    topic, port, turn = site.topic(4), free_port(), 0
    quick = {"ONCEBOX_HTTP_PORT": str(port), "REDIS_URL": redis_url, "ONCEBOX_SAMPLE_EVERY": "1s"}
    site.produce(topic, load(turn))
    async with site.worker(shop(topic), **quick):
        await eventually(lambda: answers(port), 30, "the worker's HTTP port does not open")
        with prometheus(tmp_path, port) as server:
            await eventually(server.ready, 30, "Prometheus does not start")
            open_queries, open_variables = queries(), variables()

            async def everything_answered() -> bool:
                nonlocal turn, open_queries, open_variables
                turn += 1
                await asyncio.to_thread(site.produce, topic, load(turn))
                open_queries = [query for query in open_queries if not await asyncio.to_thread(server.query, query)]
                open_variables = [(m, v) for m, v in open_variables if not server.ask(f"label/{v}/values?match[]={m}")]
                return not open_queries and not open_variables

            try:
                await eventually(everything_answered, 60, "no data", every=0.3)
            except AssertionError:
                pytest.fail(f"no data for {open_queries} {open_variables}")

            await _alerts_watch(server)
            await asyncio.to_thread(_metrics_are_clean, port, tmp_path)


async def _alerts_watch(server: Prometheus) -> None:
    """Every rule can be evaluated on these series; those about what we did fire, those about outages do not."""
    found = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in found} == {rule["alert"] for rule in rules()}
    assert [rule["name"] for rule in found if rule["health"] == "err"] == []

    def firing() -> set[str]:
        return {alert["labels"]["alertname"] for alert in server.ask("alerts")["alerts"] if alert["state"] == "firing"}

    await eventually(lambda: {"OnceboxMisuse", "OnceboxDeadLetters"} <= firing(), 20, "no alert fires", every=0.3)
    assert not firing() & {"OnceboxNoWorkers", "OnceboxPostgresAway", "OnceboxKafkaAway", "OnceboxResultRefused"}


def _metrics_are_clean(port: int, folder: Path) -> None:
    """`promtool check metrics` has nothing to say about what the worker exposes."""
    page = folder / "metrics"
    page.write_text(get(port, "/metrics")[2])
    code, said = run(Command(["/bin/sh", "-c", '"$0" check metrics < "$1"', program("promtool"), page], {}, folder))
    assert (code, said) == (0, "")
