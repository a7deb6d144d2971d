"""`oncebox keys resolve`: what became of an effect that nobody else could tell."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.acting import AsJson, Reason, Yes, actor, confirm, given_reason, print_json, print_table
from worker.cli.keys.finding import Hex, InScope, OfOperation, OfTenant, Sought
from worker.cli.keys.listing import OlderThan, age_of, numbers_of
from worker.cli.options import Config
from worker.errors import UsageError, WrongState

if TYPE_CHECKING:
    from datetime import timedelta

    from worker.ledger.desk import Desk
    from worker.ledger.keys import Entry
    from worker.ledger.rulings import Ruled, Rulings
    from worker.rules.results import Result
    from worker.settings import Settings


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What the operator says: `result` is None for not executed."""

    result: "Result | None"
    fence: int | None
    even_early: bool


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which entries in doubt are meant by --all."""

    scope: str | None
    operation: str | None
    older_than: "timedelta"
    limit: int


def resolve(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="An idempotency key, or an entry's id.", show_default=False)
    ] = None,
    *,
    executed: Annotated[
        str | None,
        typer.Option(
            "--executed", metavar="JSON|@FILE", help="The effect happened, with this result.", show_default=False
        ),
    ] = None,
    not_executed: Annotated[
        bool, typer.Option("--not-executed", help="The effect did not happen and cannot happen any more: run it again.")
    ] = False,
    fence: Annotated[
        int | None,
        typer.Option("--fence", metavar="N", help="The claim the verdict is about, as shown.", show_default=False),
    ] = None,
    reason: Reason = "",
    even_early: Annotated[
        bool,
        typer.Option(
            "--even-though-it-may-still-run",
            help="Believe --not-executed before the quiet time is over. RISK: a request already sent may still act: "
            "then the effect happens twice.",
        ),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every entry in doubt that fits the filters.")] = False,
    state: Annotated[str, typer.Option("--state", metavar="unknown", help="With --all; the only one there is.")] = (
        "unknown"
    ),
    scope: InScope = None,
    operation: OfOperation = None,
    tenant: OfTenant = None,
    as_hex: Hex = False,
    older_than: OlderThan = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="With --all: most entries.")] = 1_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    config: Config = None,
) -> int:
    """Say what became of an entry in doubt: its effect was executed, with a result, or was not, and it runs again."""
    import asyncio

    from worker.settings import load_settings

    if (executed is not None) == not_executed:
        raise UsageError("a verdict is needed, and one only\n  add --executed JSON or --not-executed")
    if (key is None) is not everything:
        raise UsageError("name one KEY, or --all with filters")
    if state != "unknown":
        raise UsageError(f"entries that are {state} have no doubt to end\n  only --state unknown can be resolved")
    if not_executed and not everything and fence is None:
        raise UsageError(
            "--not-executed needs --fence N\n  `oncebox keys show` shows it: the verdict is about that claim"
        )
    if everything and fence is not None:
        raise UsageError("--fence is for one entry; --all decides about the fences it lists")
    settings = load_settings(config)
    result = None if executed is None else read_result(executed, settings.engine.result_limit)
    verdict = _Verdict(result, fence, even_early)
    why = given_reason(reason)
    if key is not None:
        sought = Sought(key, as_hex, scope, operation, tenant)
        ruled = asyncio.run(_resolve_one(settings, sought, verdict, why, dry_run=dry_run))
        _print_ruled(ruled, as_json=as_json)
        return 0
    wanted = _Filter(scope, operation, age_of(older_than), limit)
    return asyncio.run(_resolve_all(settings, wanted, verdict, why, _How(dry_run, yes, as_json)))


@dataclass(frozen=True, slots=True)
class _How:
    dry_run: bool
    yes: bool
    as_json: bool


def read_result(given: str, limit: int) -> "Result":
    """The result an operator names, as JSON or in a file; the bytes are stored as they are given."""
    from worker.rules.claims import Status
    from worker.rules.document import Document
    from worker.rules.reasons import Refused
    from worker.rules.results import NOTHING, ContentType, Result

    body = given.encode(errors="surrogateescape")
    if given.startswith("@"):
        try:
            body = Path(given[1:]).read_bytes()
        except OSError as error:
            raise UsageError(f"--executed {given}: {error.strerror or error}") from None
    body = body.strip()
    try:
        value = Document(body).json
    except Refused as refused:
        raise UsageError(
            f"--executed: {refused.detail}\n  quote it for the shell, like --executed '{{\"receipt\": 7}}', or null"
        ) from None
    if len(body) > limit:
        raise UsageError(f"--executed: {len(body)} bytes are more than the limit of {limit} for a result")
    return NOTHING if value is None else Result(Status.OK, ContentType.JSON, body)


async def _resolve_one(settings: "Settings", sought: Sought, verdict: _Verdict, why: str, *, dry_run: bool) -> "Ruled":
    from uuid import UUID

    from worker.cli.keys.finding import one_story
    from worker.ledger.desk import open_desk
    from worker.ledger.keys import Keys
    from worker.ledger.rulings import By, Rulings

    async with open_desk(settings.database) as desk:
        story = await one_story(Keys(desk), settings, sought)
        rulings = Rulings(desk, By(actor(), why), dry_run=dry_run)
        return await _rule(rulings, UUID(story.id).bytes, verdict, verdict.fence)


async def _rule(rulings: "Rulings", id_: bytes, verdict: _Verdict, fence: int | None) -> "Ruled":
    if verdict.result is not None:
        return await rulings.executed(id_, verdict.result, fence=fence)
    assert fence is not None
    return await rulings.not_executed(id_, fence=fence, even_early=verdict.even_early)


async def _resolve_all(settings: "Settings", wanted: _Filter, verdict: _Verdict, why: str, how: _How) -> int:
    from uuid import UUID

    from worker.ledger.desk import open_desk
    from worker.ledger.rulings import By, Rulings

    async with open_desk(settings.database) as desk:
        entries, more = await _in_doubt(desk, wanted)
        if not how.dry_run and entries:
            word = "not executed" if verdict.result is None else "executed"
            rest = f" (the first {len(entries)} of more)" if more else ""
            confirm(f"Declare {len(entries)} entries in doubt as {word}{rest}?", yes=how.yes)
        rulings = Rulings(desk, By(actor(), why), dry_run=how.dry_run)
        ruled: list[Ruled] = []
        refused: list[tuple[Entry, str]] = []
        for entry in entries:
            # What was listed and agreed to, by its fence: one that is in doubt anew meanwhile is another decision.
            try:
                ruled.append(await _rule(rulings, UUID(entry.id).bytes, verdict, entry.fence))
            except WrongState as error:
                refused.append((entry, error.problem))
    _print_all(ruled, refused, how, more=more)
    return 1 if refused else 0


async def _in_doubt(desk: "Desk", wanted: _Filter) -> "tuple[list[Entry], bool]":
    from worker.ledger.keys import Keys
    from worker.ledger.listing import Listing, Wanted
    from worker.rules.claims import State

    numbers = await numbers_of(Keys(desk), wanted.scope, wanted.operation)
    entries: list[Entry] = []
    after: str | None = None
    while len(entries) < wanted.limit:
        size = min(1_000, wanted.limit - len(entries))
        page = await Listing(desk).page(Wanted(State.UNKNOWN, numbers, wanted.older_than, size, after))
        entries += page.entries
        after = page.next
        if after is None:
            break
    return entries, after is not None


def _print_ruled(ruled: "Ruled", *, as_json: bool) -> None:
    if as_json:
        print_json(ruled_json(ruled))
        return
    tense = "would become" if ruled.dry_run else "is now"
    print(f"entry {ruled.id} was {ruled.old.name.lower()} (fence {ruled.fence}) and {tense} {ruled.new.name.lower()}")
    print(next_steps(ruled))


def next_steps(ruled: "Ruled") -> str:
    """What happens to the records that waited for the entry."""
    if ruled.woken:
        return f"{ruled.woken} parked record(s) of it are tried next"
    if ruled.new.name == "COMPLETED":
        return "no record of it is parked; the next redelivery is answered from this result"
    return "no record of it is parked: it runs when its record is delivered or redriven again"


def ruled_json(ruled: "Ruled") -> dict[str, object]:
    return {
        "id": ruled.id,
        "old_state": ruled.old.name.lower(),
        "new_state": ruled.new.name.lower(),
        "fence": ruled.fence,
        "woken": ruled.woken,
        "dry_run": ruled.dry_run,
    }


def _print_all(ruled: "list[Ruled]", refused: "list[tuple[Entry, str]]", how: _How, *, more: bool) -> None:
    if how.as_json:
        left = [{"id": entry.id, "fence": entry.fence, "problem": problem} for entry, problem in refused]
        resolved = [ruled_json(one) for one in ruled]
        print_json({"dry_run": how.dry_run, "resolved": resolved, "refused": left, "more": more})
        return
    print(f"{len(ruled)} {'would be' if how.dry_run else ''} resolved, {len(refused)} refused".replace("  ", " "))
    print(f"{sum(one.woken for one in ruled)} parked record(s) are tried next")
    if refused:
        print_table(("operation", "entry", "refused because"), [(e.operation.name, e.id, p) for e, p in refused[:20]])
    if more:
        print("there are more: run it again")
