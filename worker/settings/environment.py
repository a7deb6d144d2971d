"""Reads settings from variables, from the files that `..._FILE` variables name, and from a secrets directory."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from worker.errors import ConfigError
from worker.settings.files import Given
from worker.settings.group import Setting
from worker.settings.near import near

CONTROL = ("ONCEBOX_CONFIG", "ONCEBOX_SECRETS_DIR", "ONCEBOX_DEBUG", "ONCEBOX_ACTOR")
"""Variables that are no settings: they say where the settings are, or how the command line talks."""

FOREIGN = ("ONCEBOX_STACK_", "ONCEBOX_TEST_", "ONCEBOX_DEMO_", "ONCEBOX_BENCH_")
"""Prefixes that belong to the local stack, the tests, the demo and the benchmarks."""

# Kubernetes puts these into every pod beside a Service whose name begins with "oncebox".
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)")


def read_environment(
    settings: Iterable[Setting], environ: Mapping[str, str], secrets: Path | None
) -> Iterator[tuple[Setting, Given]]:
    """Yield what the environment says: variables first, then the secrets directory."""
    for setting in settings:
        given = _variable(setting, environ) or (_mounted(setting, secrets) if secrets else None)
        if given is not None:
            yield setting, given


def refuse_unknown(known: Iterable[str], environ: Mapping[str, str]) -> None:
    """A misspelt variable is an error, never a silent default."""
    names = {*known, *CONTROL}
    for name, value in environ.items():
        if name.startswith("ONCEBOX_") and name not in names and not name.startswith(FOREIGN):
            if _service_link(name, value):
                continue
            raise ConfigError(
                f"{name} is not a setting",
                setting=name,
                advice=near(name, names, otherwise="`oncebox check` lists every setting; unset this one"),
            )


def _service_link(name: str, value: str) -> bool:
    return bool(_SERVICE_LINK.search(name)) or (name.endswith("_PORT") and value.startswith(("tcp://", "udp://")))


def _variable(setting: Setting, environ: Mapping[str, str]) -> Given | None:
    found: dict[str, Given] = {}
    for name in setting.names:
        value = environ.get(name)
        if value is not None and (value.strip() or setting.keeps_empty) and not _service_link(name, value):
            found[name] = Given(value, f"environment {name}")
        pointer = environ.get(f"{name}_FILE") if setting.from_file else None
        if pointer:
            found[f"{name}_FILE"] = Given(read_secret(Path(pointer), f"{name}_FILE"), f"environment {name}_FILE")
    if len({given.value for given in found.values()}) > 1:
        raise ConfigError(
            f"{' and '.join(found)} are both set, and differ",
            setting=setting.name,
            advice=f"keep {setting.names[0]} or one of the others, not both",
        )
    return next(iter(found.values()), None)


def _mounted(setting: Setting, directory: Path) -> Given | None:
    if not setting.from_file:
        return None
    for name in setting.names:
        for path in (directory / name, directory / name.lower()):
            if path.is_file():
                return Given(read_secret(path, "ONCEBOX_SECRETS_DIR"), f"secrets directory {path}")
    return None


def read_secret(path: Path, setting: str) -> str:
    """The text of a secret's file without the line end that editors add."""
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    else:
        if text:
            return text
        problem = "is empty"
    raise ConfigError(
        f"{setting} names {path}, which {problem}",
        setting=setting,
        advice="check that the secret is mounted there and readable by this user",
    )
