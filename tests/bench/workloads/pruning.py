"""(j) a steady flow of messages beside a prune: what those who wait notice of it."""

from tests.bench.contenders import PRUNED
from tests.bench.stage import Stage
from tests.bench.track import Run, Wrong
from tests.bench.workloads.latency import sending

PER_SECOND = 2000
TURNS = 6


def play(stage: Stage, number: int) -> None:
    size, track = stage.size, stage.track
    topic = track.topics.empty("flow", size.flow)
    rest = topic.messages / PER_SECOND / 2 / TURNS
    with track.database.schema_for(PRUNED, rows=size.kept, expired=size.expired) as schema:
        run = Run(
            PRUNED,
            "j",
            number,
            topic,
            schema,
            options={"expired": size.expired, "turns": TURNS, "rest": rest},
            calls=topic.messages,
            completed=None,
            committed=topic.messages,
            feed=sending(track.topics.bootstrap, topic, PER_SECOND, linger_ms=2),
            stays=True,
        )
        measure = track.measure(run)
        if not measure.detail["busy"]["messages"]:
            raise Wrong(f"nothing was pruned while {topic.messages} messages came")
