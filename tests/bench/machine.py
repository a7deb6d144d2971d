"""What the numbers were measured on."""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from worker.settings import Settings

PACKAGES = ("aiokafka", "asyncpg", "uvloop", "orjson", "pydantic")
SETTINGS = {
    "engine": ("lease", "in_flight", "concurrency", "claim_batch", "claims_in_flight"),
    "kafka": ("fetch_records", "session_timeout"),
    "database": ("hot_connections",),
}


def describe(settings: Settings, *, services: Mapping[str, str], postgres: Mapping[str, str]) -> dict[str, Any]:
    """Hardware, versions and settings, ready for JSON."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "services": dict(services),
        "postgres": dict(postgres),
        "settings": {
            name: str(getattr(getattr(settings, group), name)) for group, names in SETTINGS.items() for name in names
        },
        "overridden": sorted(n for n in os.environ if n.startswith("ONCEBOX_")),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
