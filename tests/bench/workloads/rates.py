"""(a) unique keys, and (b) the same messages once more."""

from dataclasses import replace

from tests.bench.contenders import (
    DBOS,
    FASTSTREAM,
    FASTSTREAM_CAREFUL,
    IDEMKIT,
    ONCEBOX,
    ONCEBOX_HEADER,
    ONCEBOX_REDIS,
    POOLED,
    RAW,
    STATEMENTS,
    TUNED,
    Contender,
)
from tests.bench.messages import prefix
from tests.bench.stage import Stage, turned
from tests.bench.track import Run

QUICKLY = (ONCEBOX, RAW, ONCEBOX_REDIS, TUNED, POOLED, STATEMENTS, FASTSTREAM, IDEMKIT, DBOS)
ONCE = (POOLED, STATEMENTS, FASTSTREAM, FASTSTREAM_CAREFUL, IDEMKIT, DBOS)  # only (a)


def play(stage: Stage, number: int) -> None:
    contenders = (*QUICKLY, ONCEBOX_HEADER, FASTSTREAM_CAREFUL) if stage.size.everyone else QUICKLY
    for contender in turned(contenders, number):
        with stage.track.database.schema_for(contender) as schema:
            _compete(stage, contender, schema, number)


def _compete(stage: Stage, contender: Contender, schema: str, number: int) -> None:
    size, track = stage.size, stage.track
    messages = size.dbos_messages if contender is DBOS else size.slow_messages if contender.slow else size.messages
    topic = track.topics.orders(messages)
    rows = None if contender.completed is None else messages
    options = {"key": "header"} if contender is ONCEBOX_HEADER else {}
    first = Run(contender, "a", number, topic, schema, options=options, calls=rows, completed=rows, committed=messages)
    if contender is STATEMENTS:
        first = replace(first, calls=0, committed=None)
    track.measure(first)
    if contender in ONCE:
        return
    again = replace(first, workload="b", calls=0 if rows is not None else None)
    if contender is TUNED:
        topic = track.topics.orders(size.messages)
        track.database.complete_rest(schema, prefix(track.topics.run), topic.messages)
        again = replace(again, topic=topic, completed=topic.messages, committed=topic.messages)
    if contender is ONCEBOX_REDIS:
        track.measure(replace(again, case="filling"))
    track.database.settle(schema)
    track.measure(again)
