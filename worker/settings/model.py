"""All settings of one process in one frozen object."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from pydantic import BeforeValidator, Field, PrivateAttr

from worker.errors import ConfigError
from worker.settings.database import DatabaseSettings, RedisSettings
from worker.settings.engine import EngineSettings, ScopeSettings
from worker.settings.group import Group, Setting, settings_of
from worker.settings.kafka import KafkaSettings
from worker.settings.near import near
from worker.settings.process import HttpSettings, LogSettings
from worker.settings.show import shown, shown_size
from worker.settings.values import size

GROUPS: dict[str, type[Group]] = {
    "kafka": KafkaSettings,
    "database": DatabaseSettings,
    "redis": RedisSettings,
    "engine": EngineSettings,
    "http": HttpSettings,
    "log": LogSettings,
}
_REVOKE_MARGIN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `oncebox check`: a setting, its variable, its value as it may be seen, and who said so."""

    name: str
    variable: str
    value: str
    source: str


class Settings(Group):
    """Every setting. Built by `load_settings`, or by hand in tests; either way every rule has been checked."""

    database: DatabaseSettings
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    redis: RedisSettings = Field(default_factory=RedisSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    scopes: dict[str, ScopeSettings] = Field(default_factory=dict)

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def sources(self) -> Mapping[str, str]:
        """Dotted name of each setting -> who said so."""
        return self._sources

    @property
    def rebalance_timeout(self) -> timedelta:
        """What the broker grants a rebalance: drain and margin, so that the commit that ends a drain counts."""
        return self.engine.drain + _REVOKE_MARGIN

    def scope(self, name: str) -> ScopeSettings:
        """What was set for a scope; a variable's name fits every spelling that differs in case, dash or dot."""
        wanted = variable_form(name)
        spellings = (found for key, found in self.scopes.items() if variable_form(key) == wanted)
        return self.scopes.get(name) or next(spellings, ScopeSettings())

    def refuse_unknown_scopes(self, known: Collection[str]) -> None:
        """Settings for a scope that no registry defines are a misspelt name, never a silent default."""
        forms = {variable_form(name) for name in known}
        for name in self.scopes:
            if variable_form(name) not in forms:
                raise ConfigError(
                    f"there are settings for the scope {name!r}, but no handler uses a scope of that name",
                    setting=f"scopes.{name}",
                    advice=near(name, known, otherwise=f"the scopes are {', '.join(sorted(known)) or 'none'}"),
                )

    def effective(self) -> tuple[Row, ...]:
        """Every setting as it holds, secrets masked."""
        return tuple(
            Row(setting.name, setting.names[0], self._shown(setting), self._sources.get(setting.name, "default"))
            for setting in all_settings(self.scopes)
        )

    def _shown(self, setting: Setting) -> str:
        group: Group = getattr(self, setting.path[0]) if setting.path[0] in GROUPS else self.scopes[setting.path[1]]
        value = getattr(group, setting.path[-1])
        metadata = type(group).model_fields[setting.path[-1]].metadata
        if any(isinstance(item, BeforeValidator) and item.func is size for item in metadata):
            return shown_size(value)
        return shown(value)


def variable_form(scope: str) -> str:
    """How a scope's name is spelled inside a variable."""
    return re.sub(r"[^A-Za-z0-9]", "_", scope).upper()


def all_settings(scopes: Collection[str]) -> Iterator[Setting]:
    """Every setting there is, with those of the given scopes."""
    for section, group in GROUPS.items():
        yield from settings_of((section,), group)
    for scope in sorted(scopes):
        yield from settings_of(("scopes", scope), ScopeSettings, f"ONCEBOX_SCOPE_{variable_form(scope)}_")
