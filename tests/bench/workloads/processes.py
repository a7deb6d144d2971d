"""(i) the same backlog for one worker process, and for two that share its partitions."""

import tempfile
from pathlib import Path

from tests.bench.contenders import ONCEBOX
from tests.bench.stage import Stage
from tests.bench.track import Run


def play(stage: Stage, number: int) -> None:
    topic = stage.track.topics.orders(stage.size.shared)
    done = topic.messages
    for processes in (1, 2) if number % 2 == 0 else (2, 1):
        with stage.track.database.schema_for(ONCEBOX) as schema, tempfile.TemporaryDirectory() as folder:
            gate = Path(folder) / "open"
            run = Run(
                ONCEBOX,
                "i",
                number,
                topic,
                schema,
                case=f"{processes} processes",
                options={"resident": True, "lanes": topic.partitions // processes, "gate": str(gate)},
                processes=processes,
                calls=done,
                completed=done,
                committed=done,
                feed=gate.touch,
                stays=True,
            )
            stage.track.measure(run)
