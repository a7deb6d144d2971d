"""(e) one INSERT per message that commits with the completion, beside one that commits alone."""

from tests.bench.contenders import INSERTING, RECORDED
from tests.bench.stage import Stage, turned
from tests.bench.track import Run


def play(stage: Stage, number: int) -> None:
    topic = stage.track.topics.orders(stage.size.inserts)
    for contender in turned((RECORDED, INSERTING), number):
        calls = topic.messages if contender is RECORDED else None
        with stage.track.database.schema_for(contender) as schema:
            run = Run(
                contender, "e", number, topic, schema, calls=calls, completed=topic.keys, committed=topic.messages
            )
            stage.track.measure(run)
