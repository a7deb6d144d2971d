"""Turns what pydantic refused into one ConfigError that names setting, value and fix, and no secret."""

from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from worker.errors import ConfigError
from worker.settings.files import Given
from worker.settings.group import Setting
from worker.settings.show import shown_secret

Path = tuple[str, ...]


def refusal(error: ValidationError, settings: Mapping[Path, Setting], given: Mapping[Path, Given]) -> ConfigError:
    """One error for all refused settings; a single one also carries its name and advice."""
    found: dict[Path, tuple[str, str | None]] = {}
    for detail in error.errors(include_url=False, include_input=False):
        path = _setting_path(detail, settings)
        found.setdefault(path, _explain(detail, settings.get(path), given.get(path)))
    if len(found) == 1:
        ((path, (problem, advice)),) = found.items()
        return ConfigError(problem, setting=".".join(path), advice=advice)
    lines = [f"  {problem}" + (f" ({advice})" if advice else "") for problem, advice in found.values()]
    return ConfigError(f"{len(found)} settings are wrong\n" + "\n".join(lines))


def _setting_path(detail: ErrorDetails, settings: Mapping[Path, Setting]) -> Path:
    location = tuple(str(part) for part in detail["loc"])
    candidates = (location[:length] for length in range(len(location), 0, -1))
    return next((path for path in candidates if path in settings), location)


def _explain(detail: ErrorDetails, setting: Setting | None, given: Given | None) -> tuple[str, str | None]:
    if setting is None:
        return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}", None
    if detail["type"] == "missing" or given is None:
        example = "postgresql://user:password@host:5432/name"
        return f"{setting.names[0]} is not set", f"set it to {example}, or name a file with {setting.names[0]}_FILE"
    subject = f"{_label(setting, given)} is {_value(setting, given)}"
    if detail["type"] == "value_error":
        problem, colon, advice = detail["msg"].removeprefix("Value error, ").partition(": ")
        return f"{subject}: {problem}", advice if colon else None
    return f"{subject}: {_lowered(detail['msg'])}", None


def _label(setting: Setting, given: Given) -> str:
    kind, _, place = given.source.partition(" ")
    return place if kind == "environment" else f"{setting.name} ({given.source})"


def _value(setting: Setting, given: Given) -> str:
    if setting.secret:
        return shown_secret(str(given.value))
    text = repr(given.value)
    return text if len(text) <= 100 else text[:97] + "..."


def _lowered(message: str) -> str:
    return message.replace("Input should be", "it should be", 1)
