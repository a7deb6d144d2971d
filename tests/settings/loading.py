"""Settings from an environment that holds nothing but what a test says."""

from pathlib import Path

import pytest

from worker.errors import ConfigError
from worker.settings import Settings, load_settings

DATABASE = "postgresql://app:hunter2@db.internal:5432/ledger"


def settings(config: Path | None = None, /, **environ: str) -> Settings:
    return load_settings(config, {"DATABASE_URL": DATABASE, **environ})


def refused(config: Path | None = None, /, **environ: str) -> ConfigError:
    """The error of these settings; a test of it is always also a test that no secret is in it."""
    with pytest.raises(ConfigError) as caught:
        settings(config, **environ)
    assert "hunter2" not in str(caught.value)
    return caught.value
