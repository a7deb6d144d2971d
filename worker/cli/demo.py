"""`oncebox demo`."""

from typing import Annotated, NoReturn

import typer


def demo(
    messages: Annotated[int, typer.Option(min=10, max=100_000, help="How many different messages.")] = 3000,
    seed: Annotated[
        int | None, typer.Option(help="Send the same messages as another run did.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object to stdout, everything else to stderr.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the stack running afterwards, to look around in it.")
    ] = False,
) -> int:
    """Watch two workers take thousands of duplicates and a kill -9, and count what really happened.

    Exit code 1 when anything was lost or done twice.
    """
    import asyncio
    import random
    import signal
    import sys

    from rich.console import Console

    from worker.demo import report, stage
    from worker.demo.messages import compose, deliver
    from worker.demo.play import Play
    from worker.demo.screen import Screen

    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, _leave)
    console = Console(file=sys.stderr if as_json else sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = 200
    screen = Screen(console)
    seed = random.randrange(1_000_000) if seed is None else seed
    screen.say(f"seed {seed}")
    with (stage.kept if keep else stage.temporary)(screen.say) as scene:
        chance = random.Random(seed)
        composed = compose(scene.run, messages, chance)
        ending = asyncio.run(Play(scene, screen, composed, deliver(composed, chance)).perform())
        seconds = screen.seconds
        report.print_account(console, ending, seconds)
        if keep:
            report.print_next_steps(console, ending, scene)
        else:
            console.print("oncebox demo --keep leaves everything running, to look around in it", soft_wrap=True)
    if as_json:
        print(report.as_json(ending, seconds))
    return 0 if report.total(ending).kept_promise else 1


def _leave(sign: int, frame: object) -> NoReturn:
    # As an exception, so that everything that was opened is closed.
    raise SystemExit(128 + sign)
