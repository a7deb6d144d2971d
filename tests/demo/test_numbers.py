"""`oncebox demo` tells the truth in numbers: on services that are given, and on a machine with nothing but Python."""

import json
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.demo.command import environment, finish


def test_on_given_services_nothing_is_lost_or_done_twice_and_no_topic_is_left(
    kafka: str, database_url: str, redis_url: str, schema: str, tmp_path: Path
) -> None:
    given = environment(
        KAFKA_BOOTSTRAP_SERVERS=kafka, DATABASE_URL=database_url, REDIS_URL=redis_url, ONCEBOX_SCHEMA=schema
    )
    code, output, errors = finish("demo", "--json", "--messages", "600", "--seed", "7", env=given, cwd=tmp_path)
    assert code == 0, errors
    _check(output, 600)
    assert "kill -9 of worker 1" in errors
    assert "kafka: environment" in errors
    left = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics
    assert not [name for name in left if "demo-" in name]
    assert not list(tmp_path.iterdir())


def test_a_machine_with_nothing_but_python_has_a_demo_too(tmp_path: Path) -> None:
    given = environment(PATH="/nowhere")
    given.pop("JAVA_HOME", None)
    code, output, errors = finish("demo", "--json", "--messages", "300", env=given, cwd=tmp_path)
    assert code == 0, errors
    _check(output, 300)
    assert "an in-memory broker for the demo only" in errors


def _check(output: str, unique: int) -> None:
    found = json.loads(output)
    assert output.count("\n") == 1
    assert list(found) == ["sent", "unique", "executed", "replayed", "in_doubt", "lost", "twice", "seconds"]
    assert (found["lost"], found["twice"], found["unique"]) == (0, 0, unique)
    assert found["executed"] + found["in_doubt"] == unique
    assert unique < found["sent"] < 3 * unique
    assert 0 < found["replayed"] <= found["sent"] - found["executed"]
    assert 0 < found["seconds"] < 60
