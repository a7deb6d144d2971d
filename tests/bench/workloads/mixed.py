"""(c) every third message or so was seen before, mostly a moment ago."""

from tests.bench.contenders import ONCEBOX, RAW, TUNED
from tests.bench.stage import Stage, turned
from tests.bench.track import Run

SHARE = 0.3


def play(stage: Stage, number: int) -> None:
    for contender in turned((ONCEBOX, TUNED, RAW), number):
        messages = stage.size.slow_messages if contender.slow else stage.size.messages
        topic = stage.track.topics.mixed(messages, SHARE)
        keys = None if contender is RAW else topic.keys
        with stage.track.database.schema_for(contender) as schema:
            run = Run(contender, "c", number, topic, schema, calls=keys, completed=keys, committed=messages)
            stage.track.measure(run)
