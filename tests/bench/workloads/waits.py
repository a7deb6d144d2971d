"""(d) handlers that wait, in order per Kafka key, beside the same waits in bare asyncio."""

from dataclasses import replace

from tests.bench.contenders import SLEEPING, WAITED
from tests.bench.stage import Stage, turned
from tests.bench.track import Run

LINES = (1, 5, 20, 1000)


def play(stage: Stage, number: int) -> None:
    for lines in LINES:
        messages = stage.size.one_line if lines == 1 else stage.size.waits
        options = {"lines": lines, "concurrency": int(WAITED.settings["ONCEBOX_CONCURRENCY"])}
        topic = stage.track.topics.waiting(messages, lines)
        for contender in turned((WAITED, SLEEPING), number):
            done = messages if contender is WAITED else None
            with stage.track.database.schema_for(contender) as schema:
                run = Run(contender, "d", number, topic, schema, case=f"{lines} keys", options=options)
                stage.track.measure(replace(run, calls=done, completed=done, committed=done))
