"""Environment before secrets directory before file before default, and every value knows who said it."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from tests.settings.loading import DATABASE, settings
from worker.settings import Settings, load_settings


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_database_url_is_all_that_is_needed() -> None:
    loaded = settings()
    assert loaded.database.url.get_secret_value() == DATABASE
    assert loaded.kafka.group == "oncebox"
    assert loaded.engine.lease == timedelta(seconds=15)
    assert loaded.engine.in_flight_bytes == 64 * 1024 * 1024
    assert loaded.sources["database.url"] == "environment DATABASE_URL"
    assert loaded.sources["engine.lease"] == "default"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("worker.yaml", "engine:\n  lease: 20s\n  hold: 40s\n  in_flight: 9\n"),
        ("worker.toml", '[engine]\nlease = "20s"\nhold = 40\nin_flight = 9\n'),
    ],
)
def test_a_variable_beats_the_file_and_the_file_beats_the_default(tmp_path: Path, name: str, text: str) -> None:
    file = write(tmp_path / name, text)
    loaded = settings(file, ONCEBOX_LEASE="30s")
    assert loaded.engine.lease == timedelta(seconds=30)
    assert loaded.engine.hold == timedelta(seconds=40)
    assert loaded.engine.in_flight == 9
    assert loaded.engine.drain == timedelta(seconds=25)
    assert loaded.sources["engine.lease"] == "environment ONCEBOX_LEASE"
    assert loaded.sources["engine.hold"].startswith(f"file {file}")
    assert loaded.sources["engine.drain"] == "default"


def test_a_value_from_yaml_knows_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "w.yaml", "kafka:\n  group: billing\nengine:\n  lease: 20s\n")
    assert settings(file).sources["engine.lease"] == f"file {file}:4"


def test_the_file_is_found_by_its_variable_and_an_option_replaces_it(tmp_path: Path) -> None:
    one = write(tmp_path / "one.yaml", "kafka: {group: one}")
    two = write(tmp_path / "two.yaml", "kafka: {group: two}")
    assert settings(ONCEBOX_CONFIG=str(one)).kafka.group == "one"
    assert settings(two, ONCEBOX_CONFIG=str(one)).kafka.group == "two"


def test_an_empty_variable_or_file_value_counts_as_not_set(tmp_path: Path) -> None:
    file = write(tmp_path / "w.yaml", "redis:\n  url:\nengine:\n  lease: ~\n")
    loaded = settings(file, ONCEBOX_HOLD="", KAFKA_SASL_PASSWORD="")
    assert loaded.redis.url is None
    assert loaded.kafka.sasl_password is None
    assert loaded.sources["engine.lease"] == loaded.sources["engine.hold"] == "default"


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert settings(write(tmp_path / "w.yaml", "# nothing yet\n")).engine.in_flight == 512


@pytest.mark.parametrize(("value", "port"), [("", None), ("off", None), ("0", 0), ("8080", 8080)])
def test_the_http_port_can_be_off_free_or_fixed(value: str, port: int | None) -> None:
    assert settings(ONCEBOX_HTTP_PORT=value).http.port == port


def test_yaml_leaves_words_as_they_were_written(tmp_path: Path) -> None:
    file = write(tmp_path / "w.yaml", "kafka:\n  group: no\n  client_id: 0123\n")
    loaded = settings(file)
    assert (loaded.kafka.group, loaded.kafka.client_id) == ("no", "0123")


def test_brokers_have_an_alias_and_a_default_port() -> None:
    loaded = settings(KAFKA_BROKERS="a:19092, b,[::1]:9093")
    assert loaded.kafka.bootstrap_servers == ("a:19092", "b:9092", "[::1]:9093")
    assert loaded.sources["kafka.bootstrap_servers"] == "environment KAFKA_BROKERS"


def test_lists_come_from_commas_or_from_the_file(tmp_path: Path) -> None:
    assert settings(ONCEBOX_HANDLERS="a, b:reg,").engine.handlers == ("a", "b:reg")
    file = write(tmp_path / "w.yaml", "engine:\n  handlers: [a, 'b:reg']\n")
    assert settings(file).engine.handlers == ("a", "b:reg")
    file = write(tmp_path / "w.toml", '[engine]\nhandlers = ["a", "b:reg"]\n')
    assert settings(file).engine.handlers == ("a", "b:reg")


def test_variables_that_kubernetes_makes_for_a_service_are_not_ours() -> None:
    links = {
        "ONCEBOX_SERVICE_HOST": "10.0.0.1",
        "ONCEBOX_SERVICE_PORT_HTTP": "9464",
        "ONCEBOX_PORT": "tcp://10.0.0.1:9464",
        "ONCEBOX_PORT_9464_TCP_ADDR": "10.0.0.1",
        "ONCEBOX_HTTP_PORT": "tcp://10.0.0.1:9464",
    }
    assert settings(**links).http.port == 9464


def test_nothing_reads_the_environment_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("ONCEBOX_", "KAFKA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DATABASE_URL", DATABASE)
    monkeypatch.setenv("ONCEBOX_GROUP", "late")
    assert load_settings().kafka.group == "late"
    assert Settings(database={"url": DATABASE}).kafka.group == "oncebox"
