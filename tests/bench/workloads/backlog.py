"""(g) a long backlog, and how much memory it takes to drain it."""

from tests.bench.contenders import ONCEBOX
from tests.bench.stage import Stage
from tests.bench.track import Run


def play(stage: Stage, number: int) -> None:
    topic = stage.track.topics.orders(stage.size.backlog)
    done = topic.messages
    with stage.track.database.schema_for(ONCEBOX) as schema:
        stage.track.measure(Run(ONCEBOX, "g", number, topic, schema, calls=done, completed=done, committed=done))
