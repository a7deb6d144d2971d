"""The chart as a cluster would see it: rendered by helm, judged by the schemas of Kubernetes and of the operators."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.deploy.chart import CHART, environment, only, rendered, worker
from tests.deploy.folder import DEPLOY, run, tool
from worker.settings import load_settings

SCHEMAS = Path(__file__).parent / "schemas"
OLDEST, NEWEST = "1.30", "1.37"
EVERY_KIND = {"ConfigMap", "CronJob", "Deployment", "Job", "NetworkPolicy", "Pod", "PodDisruptionBudget", "PodMonitor"}
EVERY_KIND |= {"PrometheusRule", "ScaledObject", "ServiceAccount", "TriggerAuthentication"}


@pytest.mark.parametrize("values", ["minimal", "full"])
def test_helm_lint_finds_nothing(values: str) -> None:
    done = run(tool("helm"), "lint", "--strict", CHART, "--values", CHART / "ci" / f"{values}.yaml")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", ["minimal", "full"])
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_one_that_kubernetes_and_the_operators_accept(values: str, version: str) -> None:
    for manifest in rendered(values=values):
        own = SCHEMAS / f"{manifest['kind']}.json"
        if own.exists():
            jsonschema.validate(manifest, json.loads(own.read_text()))
        else:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_a_field_that_the_operators_do_not_know_would_be_found() -> None:
    scaled = json.loads(json.dumps(only("ScaledObject")))
    scaled["spec"]["minReplicas"] = 1
    with pytest.raises(jsonschema.ValidationError, match="minReplicas"):
        jsonschema.validate(scaled, json.loads((SCHEMAS / "ScaledObject.json").read_text()))
    deployment = json.loads(json.dumps(only("Deployment")))
    deployment["spec"]["template"]["spec"]["containers"][0]["probe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST, strict=True)


def test_one_kind_per_template_and_every_kind_with_everything_on() -> None:
    assert {manifest["kind"] for manifest in rendered()} == EVERY_KIND
    for template in (CHART / "templates").rglob("*.yaml"):
        kinds = [line for line in template.read_text().splitlines() if line.startswith("kind: ")]
        assert len(kinds) == 1, template.name


def test_a_release_holds_no_more_than_was_asked_for() -> None:
    kinds = sorted(manifest["kind"] for manifest in rendered(values="minimal"))
    assert kinds == ["ConfigMap", "Deployment", "Job", "Pod", "PodDisruptionBudget", "ServiceAccount"]


def test_pods_run_as_nobody_on_a_file_system_they_cannot_write() -> None:
    pods = [
        worker(),
        only("Pod")["spec"],
        only("Job")["spec"]["template"]["spec"],
        only("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"],
    ]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize(("drain", "margin"), [(25, 15), (60, 20), (0, 15)])
def test_the_grace_period_follows_the_drain_time(drain: int, margin: int) -> None:
    changes = (f'drain={{"seconds":{drain},"marginSeconds":{margin}}}',)
    assert worker(*changes)["terminationGracePeriodSeconds"] == drain + margin
    assert only("ConfigMap", *changes, values="minimal")["data"]["ONCEBOX_DRAIN"] == f"{drain}s"


def test_by_default_a_pod_has_fifteen_seconds_more_than_its_handlers() -> None:
    drain = load_settings(environ={"DATABASE_URL": "postgresql://h/d"}).engine.drain
    assert worker(values="minimal")["terminationGracePeriodSeconds"] == drain.total_seconds() + 15


def test_the_settings_of_a_release_are_settings_of_a_worker() -> None:
    """What the chart writes is read by the worker's own loader, which refuses unknown names and values."""
    for values in ("minimal", "full"):
        pod = worker(values=values)
        plain = only("ConfigMap", values=values, name="oncebox")["data"]
        secrets = dict.fromkeys(environment(pod["containers"][0]), "secret")
        secrets |= {"DATABASE_URL": "postgresql://h/d", "REDIS_URL": "redis://h"}
        settings = load_settings(environ={**plain, **secrets})
        assert settings.http.host == "0.0.0.0"
        assert settings.engine.handlers
    assert settings.kafka.security_protocol == "SASL_SSL"
    assert settings.kafka.ssl_certificate_location == "/etc/oncebox/kafka/tls.crt"
    assert settings.engine.in_flight == 1024
    assert settings.kafka.group == "billing"


def test_large_numbers_are_not_written_with_an_exponent() -> None:
    data = only("ConfigMap", 'settings={"ONCEBOX_IN_FLIGHT_BYTES":134217728}', values="minimal")["data"]
    assert data["ONCEBOX_IN_FLIGHT_BYTES"] == "134217728"


def test_changed_settings_restart_the_workers() -> None:
    def checksum(*changes: str) -> str:
        template = only("Deployment", *changes, values="minimal")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/settings"])

    assert checksum() != checksum('settings={"ONCEBOX_LEASE":"20s"}')
    assert checksum() == checksum('podLabels={"a":"b"}')


def test_no_value_is_a_secret() -> None:
    container = environment(worker()["containers"][0])
    assert container["DATABASE_URL"] == "billing-database/DATABASE_URL"
    assert container["REDIS_URL"] == "billing-redis/REDIS_URL"
    assert container["KAFKA_SASL_PASSWORD"] == "billing-kafka/password"
    assert not {manifest["kind"] for manifest in rendered()} & {"Secret"}


def test_keda_and_the_workers_are_let_in_by_the_same_secrets() -> None:
    container = environment(worker()["containers"][0])
    by_keda = {
        row["parameter"]: f"{row['name']}/{row['key']}"
        for row in only("TriggerAuthentication")["spec"]["secretTargetRef"]
    }
    assert by_keda["username"] == container["KAFKA_SASL_USERNAME"]
    assert by_keda["password"] == container["KAFKA_SASL_PASSWORD"]
    assert by_keda["ca"] == "billing-kafka-tls/ca.crt"
    assert by_keda["cert"] == "billing-kafka-tls/tls.crt"
    assert by_keda["key"] == "billing-kafka-tls/tls.key"
    data = only("ConfigMap", name="oncebox")["data"]
    for trigger in only("ScaledObject")["spec"]["triggers"]:
        assert trigger["metadata"]["bootstrapServers"] == data["KAFKA_BOOTSTRAP_SERVERS"]
        assert trigger["metadata"]["consumerGroup"] == data["ONCEBOX_GROUP"]
        assert trigger["metadata"]["offsetResetPolicy"] == data["ONCEBOX_START"]
        assert (trigger["metadata"]["sasl"], trigger["metadata"]["tls"]) == ("scram_sha512", "enable")
        assert trigger["authenticationRef"]["name"] == only("TriggerAuthentication")["metadata"]["name"]
    assert [t["metadata"]["topic"] for t in only("ScaledObject")["spec"]["triggers"]] == ["payments.charges", "orders"]


def test_keda_alone_decides_how_many_workers_there_are() -> None:
    assert "replicas" not in only("Deployment")["spec"]
    assert only("Deployment", values="minimal")["spec"]["replicas"] == 2


def test_the_schema_is_migrated_before_a_worker_starts_and_needs_nothing_of_the_release() -> None:
    job = only("Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    pod = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in pod
    (container,) = pod["containers"]
    assert container["args"] == ["migrate"]
    assert "envFrom" not in container
    assert environment(container) == {
        "DATABASE_URL": "billing-database-owner/DATABASE_URL",
        "ONCEBOX_SCHEMA": "billing",
    }
    own = environment(only("Job", values="minimal")["spec"]["template"]["spec"]["containers"][0])
    assert own["DATABASE_URL"] == "oncebox-database/DATABASE_URL"


def test_selectors_meet_the_workers_and_nothing_else_of_the_release() -> None:
    def selects(selector: dict[str, str], manifest: dict[str, Any]) -> bool:
        return bool(selector.items() <= manifest["metadata"]["labels"].items())

    workers = only("Deployment")["spec"]["template"]
    others = [only("Pod"), only("Job")["spec"]["template"], only("CronJob")["spec"]["jobTemplate"]["spec"]["template"]]
    selectors = [
        only("Deployment")["spec"]["selector"],
        only("PodMonitor")["spec"]["selector"],
        only("PodDisruptionBudget")["spec"]["selector"],
        only("NetworkPolicy")["spec"]["podSelector"],
    ]
    for selector in selectors:
        assert selects(selector["matchLabels"], workers)
        assert not any(selects(selector["matchLabels"], other) for other in others)


def test_a_sweep_by_the_clock_runs_without_handlers_unless_told() -> None:
    def handlers(*changes: str) -> str | None:
        job = only("CronJob", *changes)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        return environment(job["containers"][0]).get("ONCEBOX_HANDLERS")

    assert handlers() == ""
    assert handlers('sweep={"enabled":true,"withHandlers":true}') is None


def test_rules_and_dashboard_are_those_of_the_folder() -> None:
    groups = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())["groups"]
    installed = only("PrometheusRule")["spec"]["groups"]
    assert [g["name"] for g in installed] == [g["name"] for g in groups]
    alerts = [rule for group in installed for rule in group["rules"] if "alert" in rule]
    assert alerts
    for rule in alerts:
        assert rule["annotations"]["runbook_url"].startswith("https://wiki.example/oncebox/runbook.md#")
    dashboard = only("ConfigMap", name="dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["oncebox.json"]) == json.loads((DEPLOY / "grafana/oncebox.json").read_text())


def test_the_chart_speaks_of_the_version_in_the_project_file() -> None:
    import tomllib

    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project["version"]
    assert worker(values="minimal")["containers"][0]["image"] == f"oncebox:{project['version']}"
