"""One benchmark's report: Markdown, JSON and plots in a folder."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.bench.contenders import ALL
from tests.bench.measure import Measure
from tests.bench.report import plots, tables
from tests.bench.report.runs import Runs
from tests.bench.workloads import TITLES

_TABLES: Mapping[str, Callable[[Runs], str]] = {
    "a": partial(tables.of_contenders, workload="a"),
    "b": partial(tables.of_contenders, workload="b"),
    "c": partial(tables.of_contenders, workload="c"),
    "d": tables.of_waits,
    "e": partial(tables.of_contenders, workload="e"),
    "f": tables.of_latencies,
    "g": tables.of_memory,
    "h": partial(tables.of_cases, workload="h"),
    "i": partial(tables.of_cases, workload="i"),
    "j": tables.of_pruning,
}


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, on what, and how long that took."""

    measures: Sequence[Measure]
    about: Mapping[str, Any]
    seconds: float

    @classmethod
    def read(cls, file: Path) -> Self:
        """The report that was written as JSON."""
        found = json.loads(file.read_text())
        return cls([Measure(**one) for one in found["runs"]], found["about"], found["seconds"])

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.md").write_text(self.markdown() + "\n")
        runs = [asdict(one) for one in self.measures]
        written = {"about": dict(self.about), "seconds": self.seconds, "runs": runs}
        (folder / "report.json").write_text(json.dumps(written) + "\n")
        plots.draw_all(self.runs, folder)

    @property
    def runs(self) -> Runs:
        return Runs(self.measures)

    def markdown(self) -> str:
        played = [letter for letter in _TABLES if any(one.workload == letter for one in self.measures)]
        parts = ["# oncebox bench"]
        for letter in played:
            parts += [f"## ({letter}) {TITLES[letter]}", _TABLES[letter](self.runs)]
        names = {one.contender for one in self.measures}
        parts += [
            "## Who takes part",
            "\n".join(f"- **{each.name}**: {each.what}" for each in ALL if each.name in names),
        ]
        parts += ["## Measured on", self._about()]
        for one in self.measures:
            if "profile" in one.detail:
                parts += [f"## Where the worker's CPU goes, {one.case}", f"```\n{one.detail['profile']}\n```"]
        parts += ["## Must reach, on two cores", tables.of_targets(self.runs)]
        return "\n\n".join(parts)

    def _about(self) -> str:
        about = self.about
        loads = [one.load for one in self.measures]
        return "\n".join(
            [
                f"- {about['machine']}; load average {min(loads):.1f}-{max(loads):.1f} before the runs; "
                f"{self.seconds:.0f} s in all",
                f"- Python {about['python']}, {_pairs(about['packages'])}",
                f"- Postgres: {_pairs(about['postgres'])}; {_pairs(about['services'])}",
                f"- settings: {_pairs(about['settings'])}; from the environment: {_list(about['overridden'])}",
                "- Every run is a process of its own; clock and CPU from the assignment to the last durable step, "
                "start-up left out. What a contender says it did was counted in the database and in Kafka. "
                "Postgres includes its background work.",
                "- Ratios are between runs of one round, then the median (least-most) of the rounds. On a shared "
                "machine the ratios and the CPU per message count, not the rates.",
            ]
        )


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
