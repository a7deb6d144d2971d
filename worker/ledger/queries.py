"""Named queries, read once from the files beside this one."""

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
