"""Which models may be validated from the parsed payload: half the work of reading its text a second time.

A tree of objects is validated by other rules than a text: strict types, unions, Decimals, bytes and functions of the
author may see a difference. So only models of plain parts are, and one that refuses a tree is asked about the text.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel

_PLAIN: Final = frozenset({"str", "int", "float", "bool", "none", "datetime", "date", "definition-ref"})
_SETTINGS: Final = frozenset({"title", "extra_fields_behavior", "frozen"})


def tree_validator(model: type[BaseModel]) -> Callable[[Any], Any] | None:
    """What makes the model of a tree of dicts, lists, strings and numbers; None where only the text will do."""
    return model.__pydantic_validator__.validate_python if _is_plain(model.__pydantic_core_schema__) else None


def _is_plain(schema: Mapping[str, Any]) -> bool:
    if schema.get("strict"):
        return False
    kind = schema["type"]
    if kind in _PLAIN:
        return True
    match kind:
        case "model":
            return _is_plain_model(schema)
        case "model-fields":
            return all(_is_plain(field["schema"]) for field in schema["fields"].values())
        case "nullable" | "default":
            return _is_plain(schema["schema"])
        case "list":
            return "items_schema" in schema and _is_plain(schema["items_schema"])
        case "definitions":
            return all(map(_is_plain, schema["definitions"])) and _is_plain(schema["schema"])
    return False


def _is_plain_model(schema: Mapping[str, Any]) -> bool:
    settings = schema.get("config", {})
    return (
        settings.keys() <= _SETTINGS
        # What is kept beside the fields would be shared with whoever reads the payload.
        and settings.get("extra_fields_behavior") != "allow"
        and not schema.get("custom_init")
        and not schema.get("root_model")
        and _is_plain(schema["schema"])
    )
