"""Finds every setting: environment before secrets directory before file before default."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from worker.errors import ConfigError
from worker.settings.engine import ScopeSettings
from worker.settings.environment import read_environment, refuse_unknown
from worker.settings.files import Given, Tree, read_file
from worker.settings.group import Setting
from worker.settings.model import GROUPS, Settings, all_settings, variable_form
from worker.settings.near import near
from worker.settings.problems import refusal

# The longest ending first: ONCEBOX_SCOPE_X_AUDIT_TTL is the audit_ttl of x, not the ttl of x_audit.
_SCOPE = re.compile(r"ONCEBOX_SCOPE_(\w+?)_(?:AUDIT_TTL|TTL|SECRET)(?:_FILE)?", re.IGNORECASE)


def load_settings(config: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """All settings, checked, each remembering who said so; ConfigError names what is wrong and the fix."""
    environ = os.environ if environ is None else environ
    path = config or (Path(environ["ONCEBOX_CONFIG"]) if environ.get("ONCEBOX_CONFIG") else None)
    tree = read_file(path) if path else {}
    secrets = _secrets_directory(environ)
    named = tree.get("scopes")
    scopes = _scopes(named if isinstance(named, dict) else {}, environ, secrets)
    settings = {setting.path: setting for setting in all_settings(scopes)}
    given = dict(_from_file(tree, settings))
    given.update((setting.path, value) for setting, value in read_environment(settings.values(), environ, secrets))
    refuse_unknown((name for setting in settings.values() for name in setting.variables), environ)
    try:
        loaded = Settings.model_validate(_nested(given))
    except ValidationError as error:
        raise refusal(error, settings, given) from None
    loaded._sources.update({s.name: given[p].source if p in given else "default" for p, s in settings.items()})
    return loaded


def _secrets_directory(environ: Mapping[str, str]) -> Path | None:
    name = environ.get("ONCEBOX_SECRETS_DIR")
    if not name:
        return None
    if not Path(name).is_dir():
        raise ConfigError(
            f"ONCEBOX_SECRETS_DIR is {name!r}, which is not a directory",
            setting="ONCEBOX_SECRETS_DIR",
            advice="check that the secrets are mounted there",
        )
    return Path(name)


def _scopes(named: Iterable[str], environ: Mapping[str, str], secrets: Path | None) -> list[str]:
    """Scopes of the file, then those that only variables name, in lower case."""
    spelled = {variable_form(name): name for name in named}
    mounted = [entry.name for entry in secrets.iterdir()] if secrets else []
    for variable in (*environ, *mounted):
        if (match := _SCOPE.fullmatch(variable)) is not None:
            spelled.setdefault(match[1].upper(), match[1].lower())
    return list(spelled.values())


def _from_file(tree: Tree, settings: Mapping[tuple[str, ...], Setting]) -> Iterable[tuple[tuple[str, ...], Given]]:
    for path, given in _leaves(tree, ()):
        if path in settings and isinstance(given, Given):
            yield path, given
        else:
            raise _unknown(path, given, settings)


def _leaves(tree: Tree, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Given | None]]:
    for name, value in tree.items():
        deeper = (*path, name)
        # A section ends one level above its settings; what is nested deeper is reported, not searched.
        if isinstance(value, Given):
            yield deeper, value
        elif len(deeper) < (3 if deeper[0] == "scopes" else 2):
            yield from _leaves(value, deeper)
        else:
            yield deeper, None


def _unknown(path: tuple[str, ...], given: Given | None, settings: Mapping[tuple[str, ...], Setting]) -> ConfigError:
    name, where = ".".join(path), given.source if given else "the settings file"
    sections = [*GROUPS, "scopes"]
    home = next((".".join(known) for known in settings if known[-1] == path[-1] and known[0] != "scopes"), None)
    inside = GROUPS.get(path[0]) if len(path) == 2 else ScopeSettings if len(path) == 3 else None
    if path in settings:
        return ConfigError(f"{name} has settings below it ({where})", setting=name, advice="give it one value")
    if len(path) == 1 and path[0] in sections:
        return ConfigError(f"{name} is a section ({where})", setting=name, advice=f"write settings below `{name}:`")
    if path[0] in GROUPS and inside is not None:
        advice = near(path[-1], inside.model_fields, otherwise="")
    elif path[0] == "scopes" and inside is not None:
        advice = near(path[-1], inside.model_fields, otherwise="a scope takes ttl, audit_ttl and secret")
    elif path[0] == "scopes":
        advice = "name a scope and below it ttl, audit_ttl or secret"
    else:
        advice = f"write it as {home}" if home else near(path[0], sections, otherwise="")
    if not advice:
        advice = f"write it as {home}" if home else f"the sections are {', '.join(sections)}; `oncebox check` lists all"
    return ConfigError(f"{name} is not a setting ({where})", setting=name, advice=advice)


def _nested(given: Mapping[tuple[str, ...], Given]) -> dict[str, object]:
    root: dict[str, object] = {"database": {}}
    for path, value in given.items():
        level = root
        for name in path[:-1]:
            below = level.setdefault(name, {})
            assert isinstance(below, dict)
            level = below
        level[path[-1]] = value.value
    return root
