"""docker-compose.yml, by the specification's schema and by what it promises."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.chart import worker
from tests.deploy.folder import DEPLOY, ROOT, run
from tests.deploy.prometheus import program
from tests.engine.site import Site
from worker import Registry
from worker.cli.loading import load_registry
from worker.demo.messages import PARTITIONS, TOPICS
from worker.settings import load_settings
from worker.stack.containers import IMAGES

FILE = ROOT / "docker-compose.yml"
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def compose() -> dict[str, Any]:
    """The file with nothing set, as it is after variables are filled in."""
    found: dict[str, Any] = yaml.safe_load(DEFAULT.sub(r"\1", FILE.read_text()))
    return found


SERVICES: dict[str, dict[str, Any]] = compose()["services"]


def test_the_file_keeps_to_the_specification() -> None:
    schema = json.loads((Path(__file__).parent / "schemas/compose-spec.json").read_text())
    jsonschema.validate(yaml.safe_load(FILE.read_text()), schema)
    jsonschema.validate(compose(), schema)
    wrong = compose()
    wrong["services"]["kafka"]["healthchek"] = {}
    with pytest.raises(jsonschema.ValidationError, match="healthchek"):
        jsonschema.validate(wrong, schema)


def test_there_is_no_version_key_and_every_variable_has_a_default() -> None:
    assert "version" not in compose()
    assert re.findall(r"(?<!\$)\$\{?\w+\}?", DEFAULT.sub("", FILE.read_text())) == []


def test_every_image_is_pinned_and_those_of_the_stack_are_the_same() -> None:
    for name, service in SERVICES.items():
        assert re.fullmatch(r"[a-z]+(/[a-z]+)?:[\w.-]+", service["image"]), name
        assert not service["image"].endswith(":latest"), name
    assert {name: SERVICES[name]["image"] for name in IMAGES} == IMAGES
    assert SERVICES["topics"]["image"] == IMAGES["kafka"]


def test_who_waits_for_whom() -> None:
    assert {name: need["condition"] for name, need in SERVICES["worker"]["depends_on"].items()} == {
        "migrate": "service_completed_successfully",
        "topics": "service_completed_successfully",
        "kafka": "service_healthy",
        "postgres": "service_healthy",
        "redis": "service_healthy",
    }
    for name, service in SERVICES.items():
        for needed, how in service.get("depends_on", {}).items():
            other = SERVICES[needed]
            assert set(other.get("profiles", [])) <= set(service.get("profiles", [])), f"{name} needs {needed}"
            if how["condition"] == "service_healthy":
                assert other["healthcheck"]["test"], f"{needed} has no health check"
            else:
                assert other["restart"] == "no", f"{needed} never completes"


def test_profiles_add_the_sender_and_those_who_watch() -> None:
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    assert {name: given for name, given in profiles.items() if given} == {
        "seed": ["demo"],
        "prometheus": ["observability"],
        "grafana": ["observability"],
    }
    assert SERVICES["worker"]["deploy"]["replicas"] == 2


def test_ports_are_open_to_this_machine_only() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name


def test_what_is_mounted_exists() -> None:
    named = set(compose()["volumes"])
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in named or (ROOT / source).exists(), f"{name}: {source}"
            assert not (ROOT / source).is_symlink(), "an engine may not follow it"


def test_workers_have_the_chart_s_time_to_stop_and_its_restrictions() -> None:
    service = SERVICES["worker"]
    assert service["stop_grace_period"] == f"{worker(values='minimal')['terminationGracePeriodSeconds']}s"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["build"] == {"context": ".", "dockerfile": "deploy/Dockerfile"}


def test_the_workers_settings_are_settings_and_their_topics_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    environment = SERVICES["worker"]["environment"]
    settings = load_settings(environ={**environment})
    registry = load_registry(settings.engine.handlers)
    (script,) = SERVICES["topics"]["command"]
    [topics] = re.findall(r"for topic in (.*);", script)
    made = set(topics.split())
    assert registry.topics == made == set(TOPICS.values())
    assert f"--partitions {PARTITIONS} " in script
    assert f'"{settings.kafka.dead_letter_prefix}$$topic"' in script


def test_prometheus_and_grafana_find_what_they_are_given() -> None:
    config = yaml.safe_load((DEPLOY / "compose/prometheus.yml").read_text())
    done = run(program("promtool"), "check", "config", "--syntax-only", DEPLOY / "compose/prometheus.yml")
    assert done.returncode == 0, done.stderr
    mounted = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert set(config["rule_files"]) <= mounted
    (job,) = config["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert found["names"] == ["worker"]
    assert found["port"] == load_settings(environ={"DATABASE_URL": "postgresql://h/d"}).http.port
    (provider,) = yaml.safe_load((DEPLOY / "compose/grafana-dashboards.yml").read_text())["providers"]
    mounts = {volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]}
    assert f"{provider['options']['path']}/oncebox.json" in mounts
    (source,) = yaml.safe_load((DEPLOY / "compose/grafana-datasources.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"


async def test_the_sender_of_the_demo_sends_duplicates_that_run_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for operation in list(TOPICS):
        monkeypatch.setitem(TOPICS, operation, site.topic(PARTITIONS))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", site.bootstrap)
    monkeypatch.setenv("SEED_MESSAGES", "30")
    monkeypatch.setenv("SEED_PER_SECOND", "1000")
    await runpy.run_path(str(DEPLOY / "compose/seed.py"))["main"]()
    registry = Registry()
    ran: list[str] = []

    @registry.handler(TOPICS["record_order"], scope="jobs", key="order.client_reference", kind="repeatable")
    async def note(message: dict[str, dict[str, str]]) -> None:
        ran.append(message["order"]["client_reference"])

    sent = site.read(TOPICS["record_order"])
    assert len(sent) > 10
    await site.run(registry)
    assert len(ran) == len(set(ran)) == 10
