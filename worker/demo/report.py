"""The end of the demo: the account, what its words mean, and what to try next."""

import json
import shlex
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.demo.messages import TOPICS, Operation
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


def print_account(console: Console, ending: Ending, seconds: float) -> None:
    """The table, per handler and in all, and the words in it."""
    whole = total(ending)
    table = Table("", "all", box=None, pad_edge=False, header_style="bold")
    for operation in TOPICS:
        table.add_column(Text(f"{operation}\n{KINDS[operation]}"))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, text in _rows(whole):
        alarm = name in ("lost", "twice")
        style = ("bold red" if getattr(whole, name) else "bold green") if alarm else ""
        numbers = [str(getattr(each, name)) for each in (whole, *(ending.tallies[o] for o in TOPICS))]
        table.add_row(Text(text), *numbers, style=style)
    console.print()
    console.print(table)
    console.print()
    for line in _meanings(whole):
        console.print(Text(line, style="dim"))
    if ending.doubtful:
        _print_doubts(console, ending)
    console.print()
    verdict = "nothing lost, nothing done twice" if whole.kept_promise else "THE PROMISE WAS BROKEN"
    console.print(Text(f"{verdict}, in {seconds:.1f} s", style="bold green" if whole.kept_promise else "bold red"))


def _rows(whole: Tally) -> list[tuple[str, str]]:
    rows = [
        ("sent", "sent"),
        ("unique", "unique keys"),
        ("executed", "effects executed"),
        ("replayed", "replayed"),
        ("in_doubt", "in doubt"),
        ("parked", "parked"),
        ("again", "run again"),
        ("dead", "dead letters"),
        ("lost", "lost"),
        ("twice", "done twice"),
    ]
    return [row for row in rows if row[0] not in ("again", "dead") or getattr(whole, row[0])]


def _meanings(whole: Tally) -> list[str]:
    lines = [
        "unique keys = executed + in doubt + lost; sent = executed + replayed + parked",
        "executed: completed, and the effect was found where it belongs: in the",
        "  gateway's book, the orders table or the index's book",
    ]
    if whole.in_doubt:
        lines += [
            f"in doubt: the killed worker held the claim; {whole.happened} of these effects did happen,",
            "  which only the gateway can tell; their records are parked until it is settled",
        ]
    if whole.again:
        lines.append("run again: repeatable effects that the kill interrupted; their kind allows it")
    return lines


def _print_doubts(console: Console, ending: Ending) -> None:
    console.print()
    console.print(Text("in doubt:", style="bold"))
    for message, happened in ending.doubtful[:_SHOWN_DOUBTS]:
        console.print(Text(f"  {message.key}: the gateway {'has' if happened else 'has not'} charged it"))
    if len(ending.doubtful) > _SHOWN_DOUBTS:
        console.print(Text(f"  and {len(ending.doubtful) - _SHOWN_DOUBTS} more"))
    ways = "an operator who has asked the gateway settles them: oncebox keys list, show, resolve"
    console.print(Text(f"  {ways}", style="dim"))


def print_next_steps(console: Console, ending: Ending, stage: Stage) -> None:
    """What a stack that stays up is good for."""
    schema = f"ONCEBOX_SCHEMA={shlex.quote(stage.environment['ONCEBOX_SCHEMA'])}"
    charged = [message.key for message, happened in ending.doubtful if happened]
    names = ("ONCEBOX_DEMO_RUN", "ONCEBOX_DEMO_FOLDER", "ONCEBOX_SCHEMA")
    run = " ".join(f"{name}={shlex.quote(stage.environment[name])}" for name in names)
    steps = [
        ("put its addresses into this shell", 'eval "$(oncebox stack up)"'),
        ("what became of the keys", _states(stage)),
        ("what is in doubt", f"{schema} oncebox keys list"),
        *(
            (
                "settle one that the gateway has: its records are answered from this result",
                f"{schema} oncebox keys resolve {shlex.quote(key)}"
                """ --executed '{"charged": true}' --reason 'the gateway has it'""",
            )
            for key in charged[:1]
        ),
        (
            "read every record again, as another group: all are answered, nothing runs",
            f"{run} ONCEBOX_GROUP=again oncebox run worker.demo.handlers --until-idle",
        ),
        ("stop it all", "oncebox stack down"),
    ]
    console.print()
    console.print(Text("the stack stays up; try next:", style="bold"))
    for service in stage.services:
        shown = service.why if service.how == "environment" else service.url
        console.print(Text(f"  {service.name:<9}{shown}"), soft_wrap=True)
    for text, command in steps:
        console.print(Text(f"  # {text}", style="dim"))
        console.print(Text(f"  {command}"), soft_wrap=True)


def _states(stage: Stage) -> str:
    entries = f"{stage.environment['ONCEBOX_SCHEMA']}.readable_entries"
    query = " ".join(("SELECT operation, state, count(*) FROM", entries, "GROUP BY 1, 2 ORDER BY 1, 2"))
    return f'psql "$DATABASE_URL" -c "{query}"'
