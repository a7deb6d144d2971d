"""`oncebox keys list`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.acting import AsJson, print_json, print_table
from worker.cli.keys.finding import InScope, OfOperation
from worker.cli.options import Config
from worker.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from worker.ledger.keys import Claim, Doubt, Entry, Keys
    from worker.ledger.listing import Page, Wanted
    from worker.settings import Settings


class StateName(StrEnum):
    """The states an entry can be listed by."""

    UNKNOWN = "unknown"
    IN_PROGRESS = "in_progress"
    FAILED_RETRYABLE = "failed_retryable"
    COMPLETED = "completed"


OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="TIME", help="Only those in doubt, or claimed, for longer: 10m.", show_default=False
    ),
]


def list_entries(
    *,
    state: Annotated[StateName, typer.Option("--state", help="Which entries.")] = StateName.UNKNOWN,
    scope: InScope = None,
    operation: OfOperation = None,
    older_than: OlderThan = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Most entries.")] = 50,
    after: Annotated[
        str | None, typer.Option("--after", metavar="PLACE", help="Where the last list ended.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List entries by state, page by page: those in doubt, the oldest first; changes nothing."""
    import asyncio

    from worker.rules.claims import State
    from worker.settings import load_settings

    settings = load_settings(config)

    from worker.ledger.listing import Wanted

    wanted = Wanted(State[state.name], None, age_of(older_than), limit, after)
    page, doubts, claims = asyncio.run(_look(settings, wanted, scope, operation))
    if as_json:
        from worker.cli.keys.showing import entry_json

        rows = [entry_json(entry, claims.get(entry.fence), doubts.get(entry.id)) for entry in page.entries]
        print_json({"entries": rows, "next": page.next, "looked_at": page.looked_at})
        return
    _print(page, doubts, claims, state.value)


def age_of(older_than: str | None) -> "timedelta":
    """How old entries must be."""
    from worker.rules.durations import DurationError, duration

    try:
        return duration(older_than or 0)
    except DurationError as error:
        raise UsageError(f"--older-than {error.problem}\n  {error.advice}") from None


async def _look(
    settings: "Settings", wanted: "Wanted", scope: str | None, operation: str | None
) -> "tuple[Page, dict[str, Doubt], dict[int, Claim]]":
    from dataclasses import replace
    from uuid import UUID

    from worker.ledger.desk import open_desk
    from worker.ledger.keys import Keys
    from worker.ledger.listing import Listing
    from worker.rules.claims import State

    async with open_desk(settings.database) as desk:
        keys = Keys(desk)
        numbers = await numbers_of(keys, scope, operation)
        page = await Listing(desk).page(replace(wanted, operations=numbers))
        doubts = {}
        claims = {}
        if wanted.state is State.UNKNOWN:
            found = await keys.doubts([UUID(entry.id).bytes for entry in page.entries])
            doubts = {str(UUID(bytes=id_)): doubt for id_, doubt in found.items()}
        elif wanted.state is State.IN_PROGRESS:
            claims = await keys.claims([entry.fence for entry in page.entries])
        return page, doubts, claims


async def numbers_of(keys: "Keys", scope: str | None, operation: str | None) -> list[int] | None:
    """The operations meant, by number; None for all."""
    from worker.cli.keys.finding import chosen

    if scope is None and operation is None:
        return None
    return [o.number for o in chosen(list((await keys.operations()).values()), scope, operation)]


def _print(page: "Page", doubts: "dict[str, Doubt]", claims: "dict[int, Claim]", state: str) -> None:
    if not page.entries:
        print(f"no entry is {state}")
    elif doubts:
        in_doubt = ("operation", "key", "fence", "in doubt for", "quiet", "next probe", "parked", "error")
        print_table(in_doubt, [_doubt_row(e, doubts[e.id]) for e in page.entries if e.id in doubts])
    else:
        columns = ("operation", "key", "fence", "claimed", "attempts", "crashes", "parked", "due", "session or error")
        print_table(columns, [_row(e, claims.get(e.fence)) for e in page.entries])
    if page.next is not None:
        print(f"\nmore: --after {page.next}")


def _doubt_row(entry: "Entry", doubt: "Doubt") -> tuple[object, ...]:
    from worker.cli.keys.showing import length, shown_key

    quiet = "yes" if doubt.quiet else f"in {length(doubt.quiet_until - entry.now)}"
    probe = "dead-lettered" if doubt.reported_at else _due(doubt.due_at, entry)
    return (
        entry.operation.name,
        _with_tenant(entry, shown_key(entry)),
        entry.fence,
        length(entry.now - doubt.since),
        quiet,
        probe,
        entry.held,
        entry.error,
    )


def _row(entry: "Entry", claim: "Claim | None") -> tuple[object, ...]:
    from worker.cli.keys.showing import length, shown_key

    return (
        entry.operation.name,
        _with_tenant(entry, shown_key(entry)),
        entry.fence,
        f"{length(entry.now - entry.claimed_at)} ago",
        entry.attempts,
        entry.crashes,
        entry.held,
        None if entry.due_at is None else _due(entry.due_at, entry),
        entry.error if claim is None else str(claim),
    )


def _due(moment: "datetime", entry: "Entry") -> str:
    from worker.cli.keys.showing import length

    return "now" if moment <= entry.now else f"in {length(moment - entry.now)}"


def _with_tenant(entry: "Entry", key: str) -> str:
    if entry.key is None:
        # The only name it has here.
        return f"(private) {entry.id}"
    return key if entry.tenant is None else f"{entry.tenant.decode(errors='backslashreplace')}: {key}"
