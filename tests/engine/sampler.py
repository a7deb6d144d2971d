"""The sampler: reads what the group has committed while it works, and says whether that was ever ahead of the truth.

The truth is written by triggers in the ledger, so that a completion an instant after the sample does not hide a commit
an instant before it. Postgres and this process share one machine, and so one clock.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, TopicPartition

from tests.engine.site import Site

Place = tuple[int, int]

_FINISHES = (
    "CREATE TABLE oncebox.finishes (key bytea, place text, at timestamptz NOT NULL DEFAULT clock_timestamp())",
    "CREATE FUNCTION oncebox.note_completion() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN INSERT INTO oncebox.finishes (key) VALUES (NEW.key); RETURN NULL; END $$",
    "CREATE FUNCTION oncebox.note_parking() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    """ INSERT INTO oncebox.finishes (place) VALUES (NEW.partition || '@' || NEW."offset"); RETURN NULL; END $$""",
    "CREATE TRIGGER note_completion AFTER UPDATE ON oncebox.entries FOR EACH ROW"
    " WHEN (NEW.state = 2 AND OLD.state <> 2) EXECUTE FUNCTION oncebox.note_completion()",
    "CREATE TRIGGER note_parking AFTER INSERT ON oncebox.parked FOR EACH ROW EXECUTE FUNCTION oncebox.note_parking()",
)


@dataclass(frozen=True)
class Premature:
    """A commit that was seen before everything below it was finished."""

    partition: int
    committed: int
    unfinished: int
    seconds: float


class Sampler:
    """Samples the committed offsets of one topic from a thread, as long as the `with` block lasts."""

    def __init__(self, site: Site, topic: str, partitions: int, *, every: float = 0.1) -> None:
        self._site = site
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.samples: list[tuple[float, dict[int, int]]] = []

    @staticmethod
    async def prepare(site: Site) -> None:
        """Let the ledger note when each entry was completed and each record parked."""
        for statement in _FINISHES:
            await site.fetch(statement)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(15)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                found = self._site.committed(self._places)
            except (KafkaException, TimeoutError):
                continue
            self.samples.append((time.time(), {partition: offset for (_, partition), offset in found.items()}))

    async def premature(self, sent: Mapping[Place, str]) -> list[Premature]:
        """Every sample that was ahead of unfinished work; `sent` says which key lies at which place."""
        rows = await self._site.fetch(
            "SELECT convert_from(key, 'UTF8') AS key, place, extract(epoch FROM min(at))::float8 AS at"
            " FROM oncebox.finishes GROUP BY 1, 2"
        )
        completed = {row["key"]: row["at"] for row in rows if row["key"] is not None}
        parked = {row["place"]: row["at"] for row in rows if row["place"] is not None}
        never = float("inf")
        found = []
        for number in {place[0] for place in sent}:
            offsets = sorted(offset for partition, offset in sent if partition == number)
            ends = [min(completed.get(sent[number, o], never), parked.get(f"{number}@{o}", never)) for o in offsets]
            for at, committed in self.samples:
                below = bisect_left(offsets, committed.get(number, 0))
                late = [(end, offset) for end, offset in zip(ends[:below], offsets, strict=False) if end > at]
                if late:
                    end, offset = max(late)
                    found.append(Premature(number, committed[number], offset, end - at))
        return found
