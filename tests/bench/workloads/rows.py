"""(h) unique keys, while the table already has many rows of other keys."""

from dataclasses import replace

from tests.bench.contenders import ONCEBOX
from tests.bench.stage import Stage
from tests.bench.track import Run

# Only those of this run: the table keeps what earlier rounds did.
OWN = replace(
    ONCEBOX,
    completed='SELECT count(*) FROM "{schema}".entries WHERE state = 2'
    ' AND operation = (SELECT max(id) FROM "{schema}".operations)',
)


def play(stage: Stage, number: int) -> None:
    topic = stage.track.topics.orders(stage.size.messages)
    done = topic.messages
    with stage.track.database.schema_for(ONCEBOX) as empty:
        for rows, schema in {0: empty, **{rows: stage.table(rows) for rows in stage.size.rows}}.items():
            stage.track.database.settle(schema)
            run = Run(OWN, "h", number, topic, schema, case=f"{rows:,} rows")
            # The operation is part of the identity: under another name the same messages are new.
            run = replace(run, options={"operation": f"place-{number}"}, calls=done, completed=done, committed=done)
            stage.track.measure(run)
