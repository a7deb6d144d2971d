"""What the workloads share: where contenders run, how much they are given, and what is made once for all rounds."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.contenders import ONCEBOX, Contender
from tests.bench.track import Track


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured; no round begins that would end after `seconds`."""

    messages: int
    slow_messages: int
    dbos_messages: int
    inserts: int
    waits: int
    one_line: int  # messages where a single key sets the pace
    arrivals: int
    backlog: int
    rows: tuple[int, ...]
    shared: int  # messages for one and for two processes
    kept: int  # entries beside those that are pruned
    expired: int
    flow: int  # messages while they are
    rounds: int
    seconds: float
    run_limit: int
    everyone: bool  # also the variants that show nothing new


QUICK = Size(
    messages=30_000,
    slow_messages=4_000,
    dbos_messages=400,
    inserts=5_000,
    waits=10_000,
    one_line=2_000,
    arrivals=300,
    backlog=100_000,
    rows=(1_000_000,),
    shared=60_000,
    kept=300_000,
    expired=60_000,
    flow=40_000,
    rounds=3,
    seconds=330,
    run_limit=60,
    everyone=False,
)
FULL = Size(
    messages=120_000,
    slow_messages=20_000,
    dbos_messages=2_000,
    inserts=20_000,
    waits=10_000,
    one_line=10_000,
    arrivals=1_000,
    backlog=1_000_000,
    rows=(1_000_000, 10_000_000),
    shared=120_000,
    kept=10_000_000,
    expired=1_000_000,
    flow=600_000,
    rounds=5,
    seconds=3_000,
    run_limit=600,
    everyone=True,
)
TINY = Size(
    messages=400,
    slow_messages=200,
    dbos_messages=20,
    inserts=200,
    waits=200,
    one_line=50,
    arrivals=20,
    backlog=1_000,
    rows=(1_000,),
    shared=400,
    kept=1_000,
    expired=3_000,
    flow=6_000,
    rounds=1,
    seconds=60,
    run_limit=30,
    everyone=True,
)


@dataclass(slots=True)
class Stage:
    """One benchmark."""

    track: Track
    size: Size
    making: contextlib.ExitStack
    _tables: dict[int, str] = field(default_factory=dict)

    def table(self, rows: int) -> str:
        """A schema whose table of entries has so many rows; made once, every round adds its own."""
        if rows not in self._tables:
            made = self.track.database.schema_for(ONCEBOX, rows=rows)
            self._tables[rows] = self.making.enter_context(made)
        return self._tables[rows]


def turned(contenders: Sequence[Contender], by: int) -> list[Contender]:
    """Those that can run here, another one first in each round: who follows whom must not decide."""
    here = [each for each in contenders if each.here]
    by %= len(here)
    return [*here[by:], *here[:by]]
