"""`oncebox dlq discard`: dead letters that need nothing more."""

from typing import TYPE_CHECKING

from worker.cli.acting import Reason, Yes, actor, confirm, given_reason
from worker.cli.dlq.choosing import At, Key, Of, Since, Topic, Until, Why, choice_of, open_letters, run_in_loop
from worker.cli.options import Config

if TYPE_CHECKING:
    from worker.settings import Settings


def discard(
    topic: Topic,
    *,
    reason: Reason,
    why: Why = None,
    handler: Of = None,
    key: Key = None,
    since: Since = None,
    until: Until = None,
    at: At = None,
    yes: Yes = False,
    config: Config = None,
) -> None:
    """Mark dead letters as dealt with: they are no longer listed. Kafka keeps them until its retention is over."""
    text = given_reason(reason)
    choice = choice_of(why=why, handler=handler, key=key, since=since, until=until, at=at)

    async def act(settings: "Settings") -> int:
        import asyncio

        from worker.app.redriving import find_letters, mark
        from worker.ledger.audit import Act

        async with open_letters(settings, topic, choice) as (reader, spans, letters):
            done = await letters.handled()
            total = 0
            async for found in find_letters(reader, spans, choice, done):
                total += len(found)
            if not total:
                return 0
            await asyncio.to_thread(confirm, f"Discard {total} dead letters of {reader.topic}?", yes=yes)
            discarded = 0
            async for found in find_letters(reader, spans, choice, done):
                acts = {
                    mark(x): Act(actor(), "discard", f"{reader.topic}/{x.place}", text, x.reason, "discarded", x.source)
                    for x in found
                }
                discarded += len(await letters.discard(acts)) if acts else 0
            return discarded

    print(f"discarded {run_in_loop(config, act)}")
