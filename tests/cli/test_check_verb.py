"""`oncebox check` against the real services, and against none."""

import json
from pathlib import Path
from typing import Any

from tests.cli.command import Answer, oncebox
from tests.conftest import MakeTopic

MODULE = """
from worker.rules.registry import Registry
registry = Registry()

@registry.handler({topic!r}, scope="jobs", key="id")
async def done(message: dict) -> None: ...
"""


def found(answer: Answer) -> dict[str, dict[str, Any]]:
    return {check["subject"]: check for check in json.loads(answer.output)["checks"]}


def test_everything_is_well(
    tmp_path: Path, kafka: str, database_url: str, redis_url: str, schema: str, topic: MakeTopic
) -> None:
    name = topic(3, retention_ms=60_000)
    (tmp_path / "checked.py").write_text(MODULE.format(topic=name))
    services = {"KAFKA_BOOTSTRAP_SERVERS": kafka, "DATABASE_URL": database_url, "REDIS_URL": redis_url}
    environ = {**services, "ONCEBOX_SCHEMA": schema}

    before = oncebox("check", "checked", "--json", cwd=tmp_path, **environ)
    assert before.code == 78
    assert found(before)["schema"]["advice"] == "run `oncebox migrate`"

    assert oncebox("migrate", cwd=tmp_path, **environ).code == 0
    after = oncebox("check", "checked", "--json", cwd=tmp_path, **environ)
    assert after.code == 0, after
    checks = found(after)
    assert checks["handlers"]["detail"] == "done"
    assert checks[f"topic {name}"]["detail"] == "3 partition(s)"
    assert checks[f"topic dlq.{name}"]["state"] == "warning"
    assert f"--create --topic dlq.{name} --partitions 3" in checks[f"topic dlq.{name}"]["advice"]
    assert checks[f"retention of {name}"]["state"] == "warning"
    assert all(checks[service]["state"] == "ok" for service in ("kafka", "postgres", "redis", "schema"))
    values = {row["name"]: row for row in json.loads(after.output)["settings"]}
    assert values["database.schema_name"]["source"] == "environment ONCEBOX_SCHEMA"
    assert values["kafka.sasl_password"]["value"] is None

    table = oncebox("check", "checked", cwd=tmp_path, **environ)
    assert table.code == 0
    assert "environment ONCEBOX_SCHEMA" in table.output
    assert database_url not in table.output + after.output


def test_a_topic_that_is_not_there_is_a_mistake(tmp_path: Path, kafka: str, database_url: str) -> None:
    (tmp_path / "checked.py").write_text(MODULE.format(topic="t-never-created"))
    answer = oncebox(
        "check", "checked", "--json", cwd=tmp_path, KAFKA_BOOTSTRAP_SERVERS=kafka, DATABASE_URL=database_url
    )
    assert answer.code == 78
    assert found(answer)["topic t-never-created"]["detail"] == "does not exist"
    assert "--create --topic t-never-created" in found(answer)["topic t-never-created"]["advice"]


def test_services_that_are_away_are_all_named(tmp_path: Path) -> None:
    away = {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DATABASE_URL": "postgresql://app:hunter2@127.0.0.1:1/ledger",
        "REDIS_URL": "redis://:hunter2@127.0.0.1:1/0",
    }
    answer = oncebox("check", "--json", cwd=tmp_path, **away)
    assert answer.code == 69
    checks = found(answer)
    for service in ("kafka", "postgres", "redis"):
        assert checks[service]["state"] == "failed"
        assert "127.0.0.1:1" in checks[service]["detail"]
        assert checks[service]["advice"]
    assert "hunter2" not in answer.output + answer.error
    assert answer.error == ""


def test_a_scope_that_nobody_has_and_brokers_that_nobody_named_are_mistakes(tmp_path: Path) -> None:
    (tmp_path / "checked.py").write_text(MODULE.format(topic="t"))
    environ = {"DATABASE_URL": "postgresql://127.0.0.1:1/ledger", "ONCEBOX_SCOPE_JOBB_TTL": "1d"}
    answer = oncebox("check", "checked", "--json", cwd=tmp_path, **environ)
    assert answer.code == 78
    assert "did you mean jobs?" in found(answer)["handlers"]["advice"]
    assert "KAFKA_BOOTSTRAP_SERVERS is not set" in found(answer)["kafka"]["detail"]
