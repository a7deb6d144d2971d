"""The end of the demo: the table, what its words mean, and what to try next."""

import json
import shlex
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.demo.messages import TOPICS, Message, Operation
from worker.demo.play import Ending
from worker.demo.stage import Stage
from worker.demo.tally import Tally

KINDS: Mapping[Operation, str] = {
    "charge": "external",
    "record_order": "transactional",
    "index_document": "repeatable",
}
_IN_JSON = ("sent", "unique", "executed", "replayed", "in_doubt", "lost", "twice")
_SHOWN_DOUBTS = 5


def total(ending: Ending) -> Tally:
    return sum(ending.tallies.values(), Tally())


def as_json(ending: Ending, seconds: float) -> str:
    """The one line for programs."""
    whole = total(ending)
    return json.dumps({**{name: getattr(whole, name) for name in _IN_JSON}, "seconds": round(seconds, 1)})


def print_table(console: Console, ending: Ending, seconds: float) -> None:
    """The account, per handler and in all, with the words explained beside the numbers."""
    whole = total(ending)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("all", justify="right")
    for operation in TOPICS:
        table.add_column(Text(f"{operation}\n{KINDS[operation]}"), justify="right")
    table.add_column("", style="dim")
    for name, text, meaning in _rows(whole):
        alarm = name in ("lost", "twice")
        style = ("bold red" if getattr(whole, name) else "bold green") if alarm else ""
        numbers = [str(getattr(each, name)) for each in (whole, *(ending.tallies[o] for o in TOPICS))]
        table.add_row(Text(text), *numbers, Text(meaning), style=style)
    console.print()
    console.print(table)
    console.print()
    if ending.doubtful:
        _print_doubts(console, ending.doubtful)
    verdict = "nothing lost, nothing done twice" if whole.kept_promise else "THE PROMISE WAS BROKEN"
    console.print(Text(f"{verdict}, in {seconds:.1f} s", style="bold green" if whole.kept_promise else "bold red"))


def _rows(whole: Tally) -> list[tuple[str, str, str]]:
    rows = [
        ("sent", "sent", "records that Kafka acknowledged"),
        ("unique", "unique keys", "= executed + in doubt + lost"),
        ("executed", "effects executed", "counted in the gateway's book, the orders table, the index's book"),
        ("replayed", "replayed", "records answered from the stored result"),
        ("in_doubt", "in doubt", "claimed by the killed worker: nobody may run them again unasked"),
        ("parked", "parked", "records of keys in doubt, kept until that is settled"),
    ]
    if whole.again:
        rows.append(("again", "run again", "repeatable, interrupted by the kill: allowed by its kind"))
    if whole.dead:
        rows.append(("dead", "dead letters", "records that could not be processed"))
    return [
        *rows,
        ("lost", "lost", "neither executed nor in doubt"),
        ("twice", "done twice", "keys with more than one effect"),
    ]


def _print_doubts(console: Console, doubtful: list[tuple[Message, bool]]) -> None:
    console.print(Text("in doubt, because the worker died between its claim and its result:", style="bold"))
    for message, happened in doubtful[:_SHOWN_DOUBTS]:
        console.print(Text(f"  {message.key}: the gateway {'has' if happened else 'has not'} charged it"))
    if len(doubtful) > _SHOWN_DOUBTS:
        console.print(Text(f"  and {len(doubtful) - _SHOWN_DOUBTS} more"))
    console.print()


def print_next_steps(console: Console, stage: Stage) -> None:
    """What a stack that stays up is good for."""
    schema = stage.environment["ONCEBOX_SCHEMA"]
    doubts = f"SELECT operation, key, fence, error FROM {schema}.readable_entries WHERE state = 'unknown'"
    states = f"SELECT operation, state, count(*) FROM {schema}.readable_entries GROUP BY 1, 2 ORDER BY 1, 2"
    again = {name: stage.environment[name] for name in ("ONCEBOX_DEMO_RUN", "ONCEBOX_DEMO_FOLDER", "ONCEBOX_SCHEMA")}
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in again.items())
    steps = [
        ("put its addresses into this shell", 'eval "$(oncebox stack up)"'),
        ("what became of the keys", f'psql "$DATABASE_URL" -c "{states}"'),
        ("which of them are in doubt", f'psql "$DATABASE_URL" -c "{doubts}"'),
        (
            "read every record again, as another group: all are answered, nothing runs",
            f"{variables} ONCEBOX_GROUP=again oncebox run worker.demo.handlers --until-idle",
        ),
        ("stop it all", "oncebox stack down"),
    ]
    console.print()
    console.print(Text("the stack stays up; try next:", style="bold"))
    for service in stage.services:
        console.print(Text(f"  {service.name:<9}{service.url if service.how != 'environment' else service.why}"))
    for text, command in steps:
        console.print(Text(f"  # {text}", style="dim"))
        console.print(Text(f"  {command}"), soft_wrap=True)
