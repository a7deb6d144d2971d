"""What values.schema.json refuses, as helm says it."""

import json
from collections.abc import Iterator

import jsonschema
import pytest
import yaml

from tests.deploy.chart import CHART, refusal

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_the_defaults_lack_only_what_nobody_else_can_know() -> None:
    missing = {".".join(map(str, e.absolute_path)) for e in jsonschema.Draft7Validator(SCHEMA).iter_errors(VALUES)}
    assert missing == {"handlers", "kafka.bootstrapServers", "database.existingSecret"}


def test_schema_and_values_know_the_same_names() -> None:
    def names(schema: dict[str, object], path: str = "") -> Iterator[str]:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            yield path
            return
        for name, child in properties.items():
            yield from names(child, f"{path}.{name}" if path else name)

    def given(values: object, known: set[str], path: str = "") -> Iterator[str]:
        if path in known or not isinstance(values, dict):
            yield path
            return
        for name, child in values.items():
            yield from given(child, known, f"{path}.{name}" if path else name)

    known = set(names(SCHEMA)) - {"global"}
    assert set(given(VALUES, known)) == known


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ('drain={"seconds":25,"marginSeconds":14}', "drain.marginSeconds: Must be greater than or equal to 15"),
        ('drain={"seconds":25,"marginSeconds":null}', "marginSeconds is required"),
        ("terminationGracePeriodSeconds=5", "terminationGracePeriodSeconds is not allowed"),
        ('settings={"ONCEBOX_DRAIN":"10m"}', "settings"),
        ('extraEnv=[{"name":"ONCEBOX_DRAIN","value":"10m"}]', "extraEnv.0"),
        ('settings={"LEASE":"10s"}', "settings"),
        ('kafka={"bootstrapServers":"kafka://h:9092"}', "kafka.bootstrapServers"),
        ('kafka={"bootstrapServers":"h","securityProtocol":"TLS"}', "kafka.securityProtocol"),
        ('kafka={"bootstrapServers":"h","securityProtocol":"SASL_SSL"}', "kafka.sasl.mechanism"),
        ('kafka={"bootstrapServers":"h","sasl":{"mechanism":"PLAIN","existingSecret":"s"}}', "kafka.sasl.mechanism"),
        ('kafka={"bootstrapServers":"h","tls":{"existingSecret":"s"}}', "kafka.tls.existingSecret"),
        (
            'kafka={"bootstrapServers":"h","securityProtocol":"SSL","tls":{"existingSecret":"s","certificateKey":"c"}}',
            "kafka.tls.privateKeyKey",
        ),
        ('database={"existingSecret":"","schema":"oncebox"}', "database.existingSecret"),
        ('database={"existingSecret":"s","schema":"Oncebox"}', "database.schema"),
        ('database={"existingSecret":"s","url":"postgresql://u:p@h/d"}', "url is not allowed"),
        ('autoscaling={"enabled":true}', "autoscaling.topics"),
        ('autoscaling={"enabled":true,"topics":["t"],"minReplicas":0}', "autoscaling.minReplicas"),
        ('handlers=["handlers/payments.py"]', "handlers.0"),
        ('podDisruptionBudget={"maxUnavailable":0}', "podDisruptionBudget.maxUnavailable"),
        ('resource={"limits":{}}', "resource is not allowed"),
    ],
)
def test_values_that_cannot_work_are_refused(change: str, says: str) -> None:
    assert says in refusal(change)
