"""`oncebox keys explain`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.acting import AsJson, print_fields, print_json
from worker.cli.options import Config, Registries
from worker.errors import UsageError

if TYPE_CHECKING:
    from worker.app.explaining import Explained

_LONGEST = 64 * 1024 * 1024


def explain(
    record: Annotated[
        str, typer.Argument(metavar="RECORD.json", help="As `kcat -J` writes it; - reads it here.", show_default=False)
    ],
    registries: Registries = None,
    *,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="OTHER.json", help="Say whether the two collide.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Explain what oncebox makes of a record: handler, key, entry, fingerprint, and whether a retry would collide.

    Runs nothing, and changes nothing.
    """
    import asyncio

    from worker.cli.loading import load_registry
    from worker.rules.described import read_described
    from worker.settings import load_settings

    files = [record] if against is None else [record, against]
    if files == ["-", "-"]:
        raise UsageError("only one of the two records can be read from here")
    records = [read_described(_read(file)) for file in files]
    settings = load_settings(config)
    registry = load_registry(registries or settings.engine.handlers)

    from worker.app.explaining import compare
    from worker.app.explaining import explain as explain_all

    explained = asyncio.run(explain_all(settings, registry, records))
    verdict = None if against is None else compare(*explained)
    if as_json:
        print_json({"records": [_json(one) for one in explained], "compared": verdict})
        return
    for number, one in enumerate(explained):
        if number:
            print()
        print_fields(_fields(one))
    if verdict is not None:
        print(f"\n{verdict}")


def _read(file: str) -> bytes:
    try:
        if file == "-":
            found = sys.stdin.buffer.read(_LONGEST + 1)
        else:
            with Path(file).open("rb") as opened:
                found = opened.read(_LONGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    if len(found) > _LONGEST:
        raise UsageError(f"{file} is longer than {_LONGEST} bytes: give one record")
    if not found.strip():
        raise UsageError(f"{file} is empty: give one record as JSON")
    return found


def _fields(one: "Explained") -> dict[str, Any]:
    record, route = one.record, one.route
    fields: dict[str, Any] = {
        "record": f"{record.topic}/{record.partition}@{record.offset}",
        "handler": None if route is None else f"{route.name} ({route.handler.kind.name.lower()})",
        "routed": one.routing,
    }
    if one.refused is not None:
        return {**fields, "now": f"it would be dead-lettered as {one.refused.reason}: {one.refused.detail}"}
    assert route is not None
    row = one.row
    return {
        **fields,
        "key": f"{_shown(one, one.key)}, from {one.key_rule}",
        "tenant": None if one.tenant is None else f"{_shown(one, one.tenant)}, from {one.tenant_rule}",
        "entry": one.entry,
        "fingerprint": "none: the scope compares no payloads"
        if one.fingerprint is None
        else f"{one.fingerprint.hex()}, of {route.fingerprint.describe()}",
        "first one": None
        if row is None or row.fingerprint in (None, one.fingerprint)
        else f"{row.fingerprint.hex()} is stored",
        "row": "none" if row is None else f"{row.state.name.lower()}, fence {row.fence}",
        "now": one.now,
    }


def _shown(one: "Explained", value: bytes | None) -> str:
    if one.route is not None and one.route.private:
        return "(private)"
    return "" if value is None else repr(value.decode(errors="backslashreplace"))


def _json(one: "Explained") -> dict[str, Any]:
    private = one.route is not None and one.route.private
    row = one.row
    return {
        "record": f"{one.record.topic}/{one.record.partition}@{one.record.offset}",
        "handler": None if one.route is None else one.route.name,
        "routing": one.routing,
        "refused": None if one.refused is None else {"reason": one.refused.reason, "detail": one.refused.detail},
        "private": private,
        "key": None if private else one.key,
        "key_rule": one.key_rule,
        "tenant": None if private else one.tenant,
        "tenant_rule": one.tenant_rule,
        "entry": one.entry,
        "fingerprint": None if one.fingerprint is None else one.fingerprint.hex(),
        "fingerprint_rule": None if one.route is None else one.route.fingerprint.describe(),
        "row": None
        if row is None
        else {
            "state": row.state.name.lower(),
            "fence": row.fence,
            "fingerprint": None if row.fingerprint is None else row.fingerprint.hex(),
        },
        "now": one.now,
    }
