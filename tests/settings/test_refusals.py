"""Every wrong setting is refused at start with its name, its value and the fix."""

from pathlib import Path

import pytest

from tests.settings.loading import refused, settings
from worker.errors import ConfigError
from worker.settings import load_settings


def test_a_missing_database_url_is_named() -> None:
    with pytest.raises(ConfigError, match="DATABASE_URL is not set") as caught:
        load_settings(environ={})
    assert caught.value.setting == "database.url"
    assert caught.value.exit_code == 78
    assert "postgresql://" in str(caught.value.advice)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("DATABASE_URL", "mysql://app:hunter2@h/d", "begins with mysql://"),
        ("DATABASE_URL", "postgresql+asyncpg://app:hunter2@h/d", "begins with postgresql+asyncpg://"),
        ("DATABASE_URL", "host=h password=hunter2", "has no scheme"),
        ("DATABASE_URL", "postgresql://app:hunter2@h:port/d", "port is not a number"),
        ("REDIS_URL", "http://h", "begins with http://"),
        ("KAFKA_BOOTSTRAP_SERVERS", "kafka://h:9092", "without a scheme"),
        ("KAFKA_BOOTSTRAP_SERVERS", "h:99999", "is not a broker"),
        ("KAFKA_SECURITY_PROTOCOL", "TLS", "'SASL_SSL'"),
        ("KAFKA_SASL_MECHANISM", "OAUTHBEARER", "OAUTHBEARER is not supported yet"),
        ("KAFKA_SASL_MECHANISM", "aws_msk_iam", "AWS_MSK_IAM is not supported yet"),
        ("ONCEBOX_LEASE", "soon", "not a duration"),
        ("ONCEBOX_LEASE", "-5", "not a duration"),
        ("ONCEBOX_LEASE", "1s", "at least 3s"),
        ("ONCEBOX_HOLD", "2h", "at most 10m"),
        ("ONCEBOX_IN_FLIGHT", "0", "greater than or equal to 1"),
        ("ONCEBOX_IN_FLIGHT", "many", "valid integer"),
        ("ONCEBOX_IN_FLIGHT_BYTES", "64 apples", "not a size"),
        ("ONCEBOX_SCHEMA", 'Robert"; DROP', "not a plain name"),
        ("ONCEBOX_SCHEMA", "pg_mine", "not a plain name"),
        ("ONCEBOX_START", "yesterday", "write earliest, latest or a time"),
        ("ONCEBOX_START", "2026-01-31T08:00:00", "a time without a zone"),
        ("ONCEBOX_DEAD_LETTER_PREFIX", "dead letters/", "not part of a topic name"),
        ("ONCEBOX_HTTP_PORT", "99999", "less than or equal to 65535"),
        ("ONCEBOX_LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("ONCEBOX_SCOPE_PAYMENTS_TTL", "forever", "not a duration"),
        ("ONCEBOX_SCOPE_PAYMENTS_SECRET", "hunter2", "at least 16 characters"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: str, problem: str) -> None:
    error = refused(**{name: value})
    assert name in str(error)
    assert problem in str(error)
    assert error.setting is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ONCEBOX_LEASE", "5"),
        ("ONCEBOX_HEARTBEAT_INTERVAL", "300ms"),
        ("ONCEBOX_IN_FLIGHT_BYTES", "1.5 GiB"),
        ("ONCEBOX_IN_FLIGHT_BYTES", "64mb"),
        ("ONCEBOX_START", "latest"),
        ("ONCEBOX_START", "2026-01-31T08:00:00+01:00"),
        ("ONCEBOX_LOG_LEVEL", "WARNING"),
        ("KAFKA_SECURITY_PROTOCOL", "ssl"),
    ],
)
def test_the_usual_spellings_are_accepted(name: str, value: str) -> None:
    settings(**{name: value})


def test_all_wrong_values_are_told_at_once() -> None:
    text = str(refused(ONCEBOX_LEASE="x", ONCEBOX_IN_FLIGHT="x", DATABASE_URL="x"))
    assert text.startswith("3 settings are wrong")
    assert "ONCEBOX_LEASE" in text
    assert "ONCEBOX_IN_FLIGHT" in text
    assert "DATABASE_URL" in text


@pytest.mark.parametrize(
    ("environ", "setting", "problem"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "kafka.sasl_mechanism", "KAFKA_SASL_MECHANISM is not set"),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USERNAME": "app"},
            "kafka.sasl_password",
            "KAFKA_SASL_PASSWORD_FILE",
        ),
        ({"KAFKA_SASL_PASSWORD": "hunter2"}, "kafka.security_protocol", "SASL credentials are set"),
        ({"KAFKA_SSL_CA_LOCATION": "/ca.pem"}, "kafka.security_protocol", "KAFKA_SSL_ settings are given"),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEY_LOCATION": "/key.pem"},
            "kafka.ssl_certificate_location",
            "without KAFKA_SSL_CERTIFICATE_LOCATION",
        ),
        ({"ONCEBOX_SESSION_TIMEOUT": "1500ms"}, "kafka.session_timeout", "three times"),
        ({"ONCEBOX_PARTITION_FETCH_BYTES": "1GiB"}, "kafka.partition_fetch_bytes", "ONCEBOX_FETCH_MAX_BYTES"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(environ: dict[str, str], setting: str, problem: str) -> None:
    error = refused(**environ)
    assert error.setting == setting
    assert problem in str(error)
    assert error.advice


@pytest.mark.parametrize(
    ("name", "meant"),
    [("ONCEBOX_LEESE", "ONCEBOX_LEASE"), ("ONCEBOX_SCOPE_PAYMENTS_TLL", ""), ("ONCEBOX_NONSENSE", "")],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(name: str, meant: str) -> None:
    error = refused(**{name: "1"})
    assert f"{name} is not a setting" in str(error)
    assert meant in str(error.advice)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("engine:\n  leese: 5s\n", "engine.leese is not a setting (file {file}:2)\n  did you mean lease?"),
        ("lease: 5s\n", "lease is not a setting (file {file}:1)\n  write it as engine.lease"),
        ("kafka:\n  lease: 5s\n", "kafka.lease is not a setting (file {file}:2)\n  write it as engine.lease"),
        ("engin:\n  workers: 5\n", "engin.workers is not a setting (file {file}:2)\n  did you mean engine?"),
        ("engine: 5\n", "engine is a section (file {file}:1)"),
        ("engine:\n  lease:\n    time: 5s\n", "engine.lease has settings below it"),
        ("scopes:\n  payments:\n    tll: 5s\n", "scopes.payments.tll is not a setting (file {file}:3)"),
        ("scopes:\n  payments: 5s\n", "name a scope and below it ttl"),
        ("engine:\n  lease: 5x\n", "engine.lease (file {file}:2) is '5x': not a duration"),
        ("engine:\n  lease: [5s]\n", "engine.lease (file {file}:2) is ['5s']: not a duration"),
        ("engine: {lease: 5s\n", "line 2, column 1"),
        ("engine:\n\tlease: 5s\n", "line 2, column 1"),
        ("engine:\n  lease: 5s\n  lease: 6s\n", "line 3, column 3: 'lease' is given twice"),
        ("- engine\n", "expected sections"),
        ("engine:\n  handlers: [[a]]\n", "line 2, column 14: a plain value was expected here"),
        ("a: 1\n--- \nb: 2\n", "line 2, column 1"),
        ("? [a]\n: b\n", "line 1, column 3: a name was expected here"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text(text)
    error = refused(file)
    assert problem.format(file=file) in str(error)
    assert str(file) in str(error) or error.advice


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "No such file" in str(refused(tmp_path / "gone.yaml"))
    (tmp_path / "worker.ini").write_text("")
    assert "neither YAML nor TOML" in str(refused(tmp_path / "worker.ini"))
    (tmp_path / "latin.yaml").write_bytes(b"kafka: {group: caf\xe9}")
    assert "not UTF-8" in str(refused(tmp_path / "latin.yaml"))
    (tmp_path / "bell.yaml").write_bytes(b"kafka: {group: \x07}")
    assert "cannot be read" in str(refused(tmp_path / "bell.yaml"))
    (tmp_path / "worker.toml").write_text("[engine]\nlease = 5s\n")
    assert "line 2, column 10" in str(refused(tmp_path / "worker.toml"))


def test_a_file_may_not_be_a_bomb(tmp_path: Path) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text("engine: &a\n  handlers: *a\n")
    assert refused(file)
