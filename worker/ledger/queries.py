"""Named queries, read once from the files beside this one."""

from collections.abc import Callable, Mapping
from importlib.resources import files

SCHEMA = "oncebox"


def load_queries(schema: str = SCHEMA) -> dict[str, str]:
    """Every query by name, with our schema's name in place of `oncebox`."""
    found: dict[str, str] = {}
    for file in sorted(files("worker.ledger").joinpath("sql").iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".sql"):
            continue
        for block in file.read_text().split("-- name: ")[1:]:
            name, _, text = block.partition("\n")
            if name.strip() in found:
                raise ValueError(f"two queries are called {name.strip()}")
            found[name.strip()] = in_schema(text.strip(), schema)
    return found


def in_schema(text: str, schema: str) -> str:
    """The text with every `oncebox.` qualifier replaced; the settings made sure that the name is an identifier."""
    return text if schema == SCHEMA else text.replace(f"{SCHEMA}.", f'"{schema}".')


def named(watch: Callable[[str, float, bool], None], queries: Mapping[str, str]) -> Callable[[str, float, bool], None]:
    """Who is told of round trips by the texts of their statements, and wants to hear names."""
    names = {text: name for name, text in queries.items()}

    def told(text: str, seconds: float, broke: bool) -> None:
        watch(names.get(text, text), seconds, broke)

    return told
