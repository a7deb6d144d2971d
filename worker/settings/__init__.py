"""Every setting of a worker: frozen, typed, checked at start, each knowing where it came from.

Owns the names of variables and file keys and the rules between them; knows no client and opens no connection.
Nothing here reads the environment until `load_settings` is called.
"""

from worker.settings.database import DatabaseSettings, RedisSettings
from worker.settings.engine import EngineSettings, ScopeSettings
from worker.settings.kafka import KafkaSettings
from worker.settings.load import load_settings
from worker.settings.model import Row, Settings
from worker.settings.process import HttpSettings, LogSettings

__all__ = [
    "DatabaseSettings",
    "EngineSettings",
    "HttpSettings",
    "KafkaSettings",
    "LogSettings",
    "RedisSettings",
    "Row",
    "ScopeSettings",
    "Settings",
    "load_settings",
]
