"""The house keeps its plan: imports point one way, each library lives in one room, SQL in one folder."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import worker

ROOT = Path(worker.__file__).parent
ROOMS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("_")}

# Who may import whom inside the house; errors, settings and version are known everywhere but in the rules.
MAY_IMPORT: dict[str, set[str]] = {
    "rules": {"rules", "errors"},
    "engine": {"engine", "rules", "errors", "version"},
    "ledger": {"ledger", "rules", "errors", "settings", "version"},
    "kafka": {"kafka", "rules", "errors", "settings", "version"},
    "filter": {"filter", "rules", "errors", "settings", "version"},
    "observe": {"observe", "rules", "errors", "settings", "version"},
    "settings": {"settings", "rules", "errors"},
    "stack": {"stack", "errors"},
    "errors": set(),
    "version": set(),
}
HOME = {
    "aiokafka": {"kafka", "stack"},
    "asyncpg": {"ledger", "stack"},
    "redis": {"filter", "stack"},
    "prometheus_client": {"observe"},
    "confluent_kafka": {"stack"},
    "testcontainers": {"stack"},
    "typer": {"cli"},
    "structlog": {"observe", "app"},
    "opentelemetry": {"observe"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        yield parts[0].removesuffix(".py"), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_imports_point_one_way(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for owner, path in modules()
        if owner == room
        for name in imports(path)
        if name.split(".")[0] == "worker" and [*name.split("."), "worker"][1] not in MAY_IMPORT[room]
    ]
    assert wrong == []


@pytest.mark.parametrize("leaf", ["testing", "stack", "demo"])
def test_leaves_are_imported_by_nobody_but_the_command_line(leaf: str) -> None:
    allowed = {leaf} if leaf == "testing" else {leaf, "cli", "demo"}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for owner, path in modules()
        for name in imports(path)
        if name.startswith(f"worker.{leaf}") and owner not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("library", sorted(HOME))
def test_each_library_has_one_home(library: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for owner, path in modules()
        for name in imports(path)
        if name.split(".")[0] == library and owner not in HOME[library] | {"testing", "demo"}
    ]
    assert wrong == []


def test_sql_lives_in_its_folder() -> None:
    """Statements on our tables are named queries; only the migration's own bookkeeping is beside its code."""
    wrong = [
        str(path.relative_to(ROOT))
        for owner, path in modules()
        if owner in {"engine", "kafka", "rules", "filter", "observe", "app"} and "oncebox.entries" in path.read_text()
    ]
    assert wrong == []


def test_the_public_names_are_these() -> None:
    assert set(worker.__all__) == {
        "Context",
        "Effect",
        "FingerprintRule",
        "NotExecuted",
        "Reconcile",
        "Record",
        "Registry",
        "Reject",
        "Retries",
        "Scope",
        "Transaction",
        "Verdict",
        "field",
        "fingerprint",
        "header",
        "preset",
    }
