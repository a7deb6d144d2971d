"""Scope overrides by file and variable, and what is derived from settings."""

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.settings.loading import settings
from worker.errors import ConfigError


def test_a_scope_is_changed_by_the_file_or_by_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("scopes:\n  payments: {ttl: 48h}\n  my-invoices: {ttl: 2d, audit_ttl: 30d}\n")
    loaded = settings(file, ONCEBOX_SCOPE_MY_INVOICES_TTL="3d", ONCEBOX_SCOPE_JOBS_AUDIT_TTL="1d")
    assert loaded.scope("payments").ttl == timedelta(hours=48)
    assert loaded.scope("my-invoices").ttl == timedelta(days=3)
    assert loaded.scope("my-invoices").audit_ttl == timedelta(days=30)
    assert loaded.scope("jobs").audit_ttl == timedelta(days=1)
    assert loaded.scope("jobs").ttl is None
    assert loaded.scope("never mentioned").ttl is None
    assert loaded.sources["scopes.my-invoices.ttl"] == "environment ONCEBOX_SCOPE_MY_INVOICES_TTL"


def test_a_variable_fits_a_scope_whose_name_it_cannot_spell() -> None:
    loaded = settings(ONCEBOX_SCOPE_MY_INVOICES_TTL="3d")
    assert loaded.scope("My-invoices").ttl == timedelta(days=3)
    loaded.refuse_unknown_scopes(["My-invoices"])


def test_settings_for_a_scope_that_nobody_defines_are_refused() -> None:
    loaded = settings(ONCEBOX_SCOPE_PAYMENT_TTL="3d")
    with pytest.raises(ConfigError, match="scope 'payment'") as caught:
        loaded.refuse_unknown_scopes(["payments", "jobs"])
    assert caught.value.advice == "did you mean payments?"


def test_the_broker_grants_a_rebalance_more_than_the_drain() -> None:
    loaded = settings(ONCEBOX_DRAIN="20m")
    assert loaded.rebalance_timeout > loaded.engine.drain


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        settings().engine.lease = timedelta(0)  # type: ignore[misc]


def test_every_setting_is_listed_with_its_variable_and_source() -> None:
    rows = {row.name: row for row in settings(ONCEBOX_SCOPE_PAYMENTS_TTL="2d", ONCEBOX_HTTP_PORT="").effective()}
    assert rows["engine.in_flight_bytes"].value == "64MiB"
    assert rows["kafka.heartbeat_interval"].value == "500ms"
    assert rows["database.schema_name"].variable == "ONCEBOX_SCHEMA"
    assert rows["scopes.payments.ttl"].value == "2d"
    assert rows["http.port"].value == "-"
    assert len({row.variable for row in rows.values()}) == len(rows)
