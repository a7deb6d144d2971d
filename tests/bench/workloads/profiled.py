"""(p) where the worker's CPU goes, with unique keys and with duplicates."""

from dataclasses import replace

from tests.bench.contenders import ONCEBOX
from tests.bench.stage import Stage
from tests.bench.track import Run

LINES = 30


def play(stage: Stage, number: int) -> None:
    topic = stage.track.topics.orders(stage.size.shared)
    done = topic.messages
    with stage.track.database.schema_for(ONCEBOX) as schema:
        run = Run(ONCEBOX, "p", number, topic, schema, case="unique", options={"profile": LINES}, committed=done)
        stage.track.measure(replace(run, calls=done, completed=done))
        stage.track.measure(replace(run, case="duplicates", calls=0, completed=done))
