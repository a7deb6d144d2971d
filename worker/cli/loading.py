"""Finds registries by name: `module` or `module:attribute`.

A registry is an ordinary object in the user's code, so that code's mistakes surface here and are reported as theirs.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

from worker.cli.blame import blame
from worker.errors import ConfigError, RegistrationError
from worker.settings.near import nearest

if TYPE_CHECKING:
    from worker.rules.registry import Registry


def load_registry(names: Sequence[str]) -> "Registry":
    """The named registries as one; ConfigError says which name failed, why, and what to do."""
    from worker.rules.registry import Registry

    if not names:
        raise ConfigError(
            "no registry is named",
            setting="engine.handlers",
            advice="name a module with handlers: `oncebox run handlers.payments`, or set ONCEBOX_HANDLERS",
        )
    if sys.path[:1] != [os.getcwd()]:
        sys.path.insert(0, os.getcwd())
    found: dict[int, Registry] = {}
    for name in names:
        registry = _find(name, Registry)
        found[id(registry)] = registry
    merged = next(iter(found.values())) if len(found) == 1 else _merge(found.values(), Registry)
    if not merged.handlers:
        raise ConfigError(
            f"{', '.join(names)}: no handler is registered",
            setting="engine.handlers",
            advice="decorate a function with @registry.handler(topic, scope=..., key=...)",
        )
    return merged


def _merge(found: Iterable["Registry"], kind: type["Registry"]) -> "Registry":
    merged = kind()
    for registry in found:
        merged.include(registry)
    return merged


def _find(name: str, kind: type["Registry"]) -> "Registry":
    module_name, _, attribute = name.partition(":")
    if "/" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise _refused(name, "is a file's path, not a module's name", f"write {dotted}")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise _refused(name, "is not a module's name", "write module or module:attribute, like handlers.payments")
    module = _import(name, module_name)
    value = getattr(module, attribute or "registry", None)
    if isinstance(value, kind):
        return value
    others = [spelled for spelled, item in vars(module).items() if isinstance(item, kind)]
    advice = (
        f"it has a registry called {others[0]}: write {module_name}:{others[0]}"
        if others
        else "add `registry = Registry()` (from worker import Registry) and register handlers with it"
    )
    if value is None:
        raise _refused(name, f"has no {attribute or 'registry'!r}", advice)
    raise _refused(name, f"gives a {type(value).__name__}, not a Registry", advice)


def _import(name: str, module_name: str) -> ModuleType:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            raise _refused(name, f"was not found: there is no module {missing}", _advice(module_name)) from error
        advice = f"install {missing.partition('.')[0]}, or correct the import"
        raise _refused(name, f"was found, but it imports {missing}, which was not{blame(error)}", advice) from error
    except RegistrationError as error:
        problem = f"{name}: {error.problem}{blame(error)}"
        raise RegistrationError(problem, setting=error.setting, advice=error.advice) from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}".rstrip(": ")
        raise _refused(
            name, f"cannot be imported: {text}{blame(error)}", "--debug shows the whole traceback"
        ) from error


def _advice(module_name: str) -> str:
    """What was probably meant, from the modules beside the one that was asked for; imports nothing."""
    parent, _, last = module_name.rpartition(".")
    places = list(getattr(sys.modules.get(parent), "__path__", ()))
    beside = [module.name for module in iter_modules(places or [os.getcwd()])]
    meant = nearest(last if places else module_name.partition(".")[0], beside)
    if meant:
        return f"did you mean {parent + '.' if places else ''}{meant}?"
    if places:
        return f"{parent} was found in {places[0]}: is that the one you mean?"
    return "run it in the directory that holds your handlers, or correct the name"


def _refused(name: str, problem: str, advice: str) -> ConfigError:
    return ConfigError(f"{name} {problem}", setting="engine.handlers", advice=advice)
