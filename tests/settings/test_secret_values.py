"""Secrets come from variables, files or a mounted directory, and never come out again."""

from pathlib import Path

from tests.settings.loading import DATABASE, refused, settings

SASL = {
    "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "KAFKA_SASL_USERNAME": "app",
}


def test_every_secret_can_be_a_file_whose_last_line_end_does_not_count(tmp_path: Path) -> None:
    names = ("KAFKA_SASL_PASSWORD", "KAFKA_SSL_KEY_PASSWORD", "REDIS_URL", "ONCEBOX_SCOPE_SIGNUPS_SECRET")
    for name in names:
        (tmp_path / name).write_text({"REDIS_URL": "redis://h"}.get(name, f" {name} value ") + "\n")
    loaded = settings(**SASL, **{f"{name}_FILE": str(tmp_path / name) for name in names})
    assert loaded.kafka.sasl_password is not None
    assert loaded.kafka.sasl_password.get_secret_value() == " KAFKA_SASL_PASSWORD value "
    assert loaded.sources["kafka.sasl_password"] == "environment KAFKA_SASL_PASSWORD_FILE"
    assert loaded.redis.url is not None
    secret = loaded.scope("signups").secret
    assert secret is not None
    assert secret.get_secret_value() == " ONCEBOX_SCOPE_SIGNUPS_SECRET value "


def test_the_database_url_can_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://u:p@h/d\r\n")
    loaded = settings(DATABASE_URL="", DATABASE_URL_FILE=str(tmp_path / "url"))
    assert loaded.database.url.get_secret_value() == "postgresql://u:p@h/d"


def test_a_mounted_directory_gives_secrets_and_a_variable_beats_it(tmp_path: Path) -> None:
    (tmp_path / "kafka_sasl_password").write_text("mounted")
    (tmp_path / "REDIS_URL").write_text("redis://mounted")
    (tmp_path / "ONCEBOX_SCOPE_JOBS_SECRET").write_text("0123456789abcdef")
    (tmp_path / "something else").write_text("of no concern")
    loaded = settings(**SASL, ONCEBOX_SECRETS_DIR=str(tmp_path), REDIS_URL="redis://said")
    assert loaded.kafka.sasl_password is not None
    assert loaded.kafka.sasl_password.get_secret_value() == "mounted"
    assert loaded.sources["kafka.sasl_password"] == f"secrets directory {tmp_path / 'kafka_sasl_password'}"
    assert loaded.sources["redis.url"] == "environment REDIS_URL"
    assert loaded.scope("jobs").secret is not None


def test_a_secret_given_twice_is_refused_unless_both_agree(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("hunter2-b")
    error = refused(**SASL, KAFKA_SASL_PASSWORD="hunter2", KAFKA_SASL_PASSWORD_FILE=str(tmp_path / "p"))
    assert "KAFKA_SASL_PASSWORD and KAFKA_SASL_PASSWORD_FILE are both set" in str(error)
    (tmp_path / "p").write_text("hunter2\n")
    settings(**SASL, KAFKA_SASL_PASSWORD="hunter2", KAFKA_SASL_PASSWORD_FILE=str(tmp_path / "p"))


def test_a_secrets_file_that_is_missing_empty_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfa")
    for name, problem in (("gone", "No such file"), ("empty", "is empty"), ("binary", "not UTF-8")):
        error = refused(**SASL, KAFKA_SASL_PASSWORD_FILE=str(tmp_path / name))
        assert error.setting == "KAFKA_SASL_PASSWORD_FILE"
        assert problem in str(error)
        assert str(tmp_path / name) in str(error)


def test_a_secrets_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "is not a directory" in str(refused(ONCEBOX_SECRETS_DIR=str(tmp_path / "gone")))


def test_what_is_shown_holds_no_secret(tmp_path: Path) -> None:
    loaded = settings(
        **SASL,
        KAFKA_SASL_PASSWORD="hunter2",
        REDIS_URL="rediss://:hunter2@cache:6380/1",
        ONCEBOX_SCOPE_PAYMENTS_SECRET="hunter2hunter2hunter2",
    )
    shown = {row.name: row.value for row in loaded.effective()}
    assert "hunter2" not in repr(loaded) + str(loaded) + repr(shown) + loaded.model_dump_json()
    assert shown["database.url"] == "postgresql://app:***@db.internal:5432/ledger"
    assert shown["redis.url"] == "rediss://:***@cache:6380/1"
    assert shown["kafka.sasl_password"] == shown["scopes.payments.secret"] == "***"


def test_a_url_whose_password_cannot_be_told_apart_is_masked_as_a_whole() -> None:
    for url in ("postgresql://app:hunter2/x@db/name", "postgresql://app:hunter2#x@db/name", "hunter2"):
        assert "***" in str(refused(DATABASE_URL=url))


def test_a_password_in_the_query_is_masked() -> None:
    loaded = settings(DATABASE_URL="postgresql://db/name?user=app&password=hunter2&sslmode=require")
    row = next(row for row in loaded.effective() if row.name == "database.url")
    assert row.value == "postgresql://db/name?user=app&password=***&sslmode=require"
    assert DATABASE not in row.value
