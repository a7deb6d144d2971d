"""`oncebox feeds`: what groups read, how far they have come, and what holds pruning back."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.acting import AsJson, Reason, Yes
from worker.cli.options import Config

if TYPE_CHECKING:
    from worker.app.retiring import Listed, Retired

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="What groups read, how far they have come, and what holds pruning back.",
)


@app.command("list")
def list_(config: Config = None, as_json: AsJson = False) -> None:
    """Show every feed: a partition that a group reads for its operations.

    Log time is how far pruning may go: entries that expired later are kept for the records this feed has yet to read.
    """
    import asyncio

    from worker.app.retiring import listed
    from worker.cli.acting import print_json, print_table
    from worker.settings import load_settings

    rows = [_row(one) for one in asyncio.run(listed(load_settings(config)))]
    if as_json:
        print_json(rows)
        return
    columns = ("group", "topic", "partition", "operations", "watermark", "end", "log time", "sampled", "state", "since")
    print_table(columns, [_cells(row) for row in rows])


@app.command()
def retire(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic it reads.", show_default=False)],
    *,
    reason: Reason,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", metavar="N", help="Only this one; may be repeated.")
    ] = None,
    config: Config = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let feeds no longer hold pruning back: of a renamed group, of a deleted topic, or of a held partition.

    A held partition goes on at the nearest place that skips nothing; the answer says which.
    """
    import asyncio

    from worker.app.retiring import retire_feeds
    from worker.cli.acting import actor, confirm, given_reason, print_json, print_table
    from worker.settings import load_settings

    settings = load_settings(config)
    why = given_reason(reason)
    which = f"partition {', '.join(map(str, partition))}" if partition else "every partition"
    question = f"Retire {which} of {topic} for group {group}? Entries that only they need may be pruned."
    confirm(question, yes=yes or bool(partition))
    done = asyncio.run(retire_feeds(settings, group, topic, partitions=partition or (), actor=actor(), reason=why))
    if as_json:
        print_json([_retired(one) for one in done])
        return
    print_table(("group", "topic", "partition", "now"), [(*_place(one), _fate(one)) for one in done])


def _row(one: "Listed") -> dict[str, Any]:
    feed = one.feed
    state = "retired" if feed.retired_at else "held" if feed.held_since else "live"
    return {
        "group": feed.group,
        "topic": feed.topic,
        "partition": feed.partition,
        "operations": one.operations,
        "watermark": feed.watermark,
        "end": feed.end,
        "log_time": feed.log_time,
        "sampled_at": feed.sampled_at,
        "state": state,
        "since": feed.retired_at or feed.held_since,
        "why": feed.held_why,
        "held_at": feed.held_at if feed.held_since else None,
        "goes_on_at": feed.go_on_at,
        "registered_at": feed.registered_at,
        "topic_id": feed.topic_id.hex() if feed.topic_id else None,
    }


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    state = row["state"] if row["why"] is None else f"{row['state']}: {row['why']}"
    names = ("group", "topic", "partition", "watermark", "end", "log_time", "sampled_at", "since")
    group, topic, partition, watermark, end, log_time, sampled, since = (row[name] for name in names)
    return (group, topic, partition, ", ".join(row["operations"]), watermark, end, log_time, sampled, state, since)


def _place(one: "Retired") -> tuple[str, str, int]:
    return one.feed.group, one.feed.topic, one.feed.partition


def _fate(one: "Retired") -> str:
    if one.goes_on is None:
        return "retired: it no longer holds pruning back"
    past = ", from the beginning of a new log" if one.goes_on.anew else ""
    return f"retired; whoever is assigned to it goes on at offset {one.goes_on.position}{past}"


def _retired(one: "Retired") -> dict[str, Any]:
    group, topic, partition = _place(one)
    position = None if one.goes_on is None else one.goes_on.position
    return {"group": group, "topic": topic, "partition": partition, "goes_on_at": position, "now": _fate(one)}
