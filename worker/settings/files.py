"""Reads a settings file, YAML or TOML, into plain values that remember their line."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import yaml

from worker.errors import ConfigError

_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Given:
    """A value somebody wrote, and where."""

    value: object
    source: str


Tree = dict[str, "Tree | Given"]


def read_file(path: Path) -> Tree:
    """The sections and values of a settings file. Empty and null values are left out: they mean "not set"."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the settings file {path} cannot be read: {error.strerror or error}",
            setting="ONCEBOX_CONFIG",
            advice="check --config or ONCEBOX_CONFIG",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the settings file {path} is not UTF-8 text (byte {error.start})",
            setting="ONCEBOX_CONFIG",
            advice="save it as UTF-8",
        ) from None
    match path.suffix.lower():
        case ".yaml" | ".yml":
            return _yaml(path, text)
        case ".toml":
            return _toml(path, text)
    raise ConfigError(
        f"the settings file {path} is neither YAML nor TOML by its name",
        setting="ONCEBOX_CONFIG",
        advice="name it .yaml, .yml or .toml",
    )


def _toml(path: Path, text: str) -> Tree:
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _broken(path, str(error)) from None
    return _plain(path, parsed)


def _plain(path: Path, table: dict[str, object]) -> Tree:
    return {
        name: _plain(path, value) if isinstance(value, dict) else Given(value, f"file {path}")
        for name, value in table.items()
    }


def _yaml(path: Path, text: str) -> Tree:
    """Every scalar stays the text that was written, as in a variable: YAML re-reads neither `no` nor `1:30`."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _broken(path, where + (error.problem or str(error))) from None
    except yaml.YAMLError as error:
        raise _broken(path, str(error).partition("\n")[0]) from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise _broken(path, f"line {root.start_mark.line + 1}: expected sections like `kafka:` and `engine:`")
    return _mapping(path, root, 1)


def _mapping(path: Path, node: yaml.MappingNode, depth: int) -> Tree:
    tree: Tree = {}
    for key, value in node.value:
        line, column = key.start_mark.line + 1, key.start_mark.column + 1
        if not isinstance(key, yaml.ScalarNode) or depth > _DEEPEST:
            raise _broken(path, f"line {line}, column {column}: a name was expected here")
        if key.value in tree:
            raise _broken(path, f"line {line}, column {column}: {key.value!r} is given twice")
        if isinstance(value, yaml.MappingNode):
            tree[key.value] = _mapping(path, value, depth + 1)
        elif (found := _value(path, value)) is not None:
            tree[key.value] = Given(found, f"file {path}:{line}")
    return tree


def _value(path: Path, node: yaml.Node) -> str | list[str] | None:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == "tag:yaml.org,2002:null" else str(node.value)
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    for item in items:
        if not isinstance(item, yaml.ScalarNode):
            line, column = item.start_mark.line + 1, item.start_mark.column + 1
            raise _broken(path, f"line {line}, column {column}: a plain value was expected here")
    return [str(item.value) for item in items]


def _broken(path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"the settings file {path} cannot be read: {problem}",
        setting="ONCEBOX_CONFIG",
        advice="correct it and run `oncebox check` again",
    )
