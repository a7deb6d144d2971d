"""`oncebox keys release`."""

from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.acting import AsJson, Reason, actor, given_reason, print_json
from worker.cli.keys.finding import Hex, InScope, Key, OfOperation, OfTenant, Sought
from worker.cli.options import Config

if TYPE_CHECKING:
    from worker.ledger.rulings import Ruled
    from worker.settings import Settings


def release(
    key: Key,
    *,
    reason: Reason = "",
    scope: InScope = None,
    operation: OfOperation = None,
    tenant: OfTenant = None,
    as_hex: Hex = False,
    even_external: Annotated[
        bool,
        typer.Option(
            "--even-though-it-may-have-run",
            help="Release the claim of an external handler. RISK: it may have run before its session ended, and the "
            "effect then happens twice.",
        ),
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Give back a claim whose session has ended but is not settled yet; refused while the session lives."""
    import asyncio

    from worker.cli.keys.resolve import next_steps, ruled_json
    from worker.settings import load_settings

    why = given_reason(reason)
    settings = load_settings(config)
    sought = Sought(key, as_hex, scope, operation, tenant)
    ruled = asyncio.run(_release(settings, sought, why, even_external=even_external))
    if as_json:
        print_json(ruled_json(ruled))
        return
    print(f"entry {ruled.id} was {ruled.old.name.lower()} (fence {ruled.fence}) and is now {ruled.new.name.lower()}")
    print(next_steps(ruled))


async def _release(settings: "Settings", sought: Sought, why: str, *, even_external: bool) -> "Ruled":
    from uuid import UUID

    from worker.cli.keys.finding import one_story
    from worker.ledger.desk import open_desk
    from worker.ledger.keys import Keys
    from worker.ledger.rulings import By, Rulings

    async with open_desk(settings.database) as desk:
        story = await one_story(Keys(desk), settings, sought)
        return await Rulings(desk, By(actor(), why)).release(UUID(story.id).bytes, even_external=even_external)
