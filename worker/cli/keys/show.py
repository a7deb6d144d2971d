"""`oncebox keys show`."""

from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.acting import AsJson, print_fields, print_json, print_table
from worker.cli.keys.finding import Hex, InScope, Key, OfOperation, OfTenant, Sought
from worker.cli.options import Config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.ledger.keys import Story
    from worker.settings import Settings


def show(
    key: Key,
    *,
    scope: InScope = None,
    operation: OfOperation = None,
    tenant: OfTenant = None,
    as_hex: Hex = False,
    with_result: Annotated[bool, typer.Option("--result", help="Show the stored result, too.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> int:
    """Show every entry with this key: state, claim, session, doubt, parked records, history, audit; changes nothing."""
    import asyncio

    from worker.settings import load_settings

    settings = load_settings(config)
    sought = Sought(key, as_hex, scope, operation, tenant)
    stories, results, notes = asyncio.run(_look(settings, sought, with_result=with_result))
    if as_json:
        from worker.cli.keys.showing import story_json

        found = [{**story_json(s), **({"result": results.get(s.id)} if with_result else {})} for s in stories]
        print_json({"entries": found, "notes": notes})
    else:
        _print(stories, results, notes, key)
    return 0 if stories else 1


async def _look(
    settings: "Settings", sought: Sought, *, with_result: bool
) -> "tuple[Sequence[Story], dict[str, bytes | None], Sequence[str]]":
    from worker.cli.keys.finding import candidates
    from worker.ledger.desk import open_desk
    from worker.ledger.keys import Keys

    async with open_desk(settings.database) as desk:
        keys = Keys(desk)
        found = await candidates(keys, settings, sought)
        stories = await keys.stories(found.ids)
        results = {s.id: await keys.result(s.entry) for s in stories if s.entry is not None} if with_result else {}
        return stories, results, found.notes


def _print(stories: "Sequence[Story]", results: "dict[str, bytes | None]", notes: "Sequence[str]", key: str) -> None:
    from worker.cli.keys.showing import entry_fields

    for number, story in enumerate(stories):
        if number:
            print()
        if story.entry is not None:
            print(f"{story.entry.operation.name}")
            print_fields(entry_fields(story.entry, story.claim, story.doubt))
        else:
            print_fields({"entry": story.id, "state": story.state or "pruned"})
        if story.id in results:
            print_fields({"stored result": results[story.id]})
        _print_rows(story)
    if not stories:
        print(f"there is no entry for {key!r}")
    if notes:
        print()
    for note in notes:
        print(f"note: {note}")


def _print_rows(story: "Story") -> None:
    if story.parked:
        print("\nparked records")
        rows = [
            (f"{r['topic']}/{r['partition']}@{r['offset']}", r["reason"], r["parked_at"], r["due_at"])
            for r in story.parked
        ]
        print_table(("record", "because", "parked at", "due"), rows)
    if story.history:
        print("\nhistory")
        history = [(r["at"], r["event"], r["fence"], r["detail"]) for r in story.history]
        print_table(("at", "event", "fence", "detail"), history)
    if story.acts:
        print("\naudit")
        acts = [
            (r["at"], r["actor"], r["action"], r["reason"], f"{r['old_state']} -> {r['new_state']}") for r in story.acts
        ]
        print_table(("at", "actor", "action", "reason", "state"), acts)
