"""The measures as tables in Markdown, and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from tests.bench.contenders import CONTENDERS, OURS, WORKLOADS, Contender, Measure, Workload

HEAD = (
    "contender",
    "msg/s median (min-max)",
    "oncebox / it, median (per round)",
    "CPU us/msg worker / Postgres / broker",
    "peak RSS MB",
    "messages",
    "does not guarantee",
)


def as_json(measures: Sequence[Measure], about: Mapping[str, Any]) -> dict[str, Any]:
    return {**about, "runs": [{**asdict(one), "rate": one.rate} for one in measures]}


def as_markdown(measures: Sequence[Measure], about: Mapping[str, Any]) -> str:
    rounds = len({one.round for one in measures})
    loads = [one.load for one in measures]
    parts = [f"# oncebox bench: {rounds} rounds, contenders in turn"]
    parts += [_table(workload, title, measures) for workload, title in WORKLOADS.items()]
    parts.append("\n".join(f"- **{one.name}**: {one.what}" for one in CONTENDERS))
    parts.append(
        "\n".join(
            [
                f"- {about['machine']}; load average {min(loads):.1f}-{max(loads):.1f} before the runs",
                f"- Python {about['python']}, {_pairs(about['packages'])}",
                f"- Postgres: {_pairs(about['postgres'])}; {_pairs(about['services'])}",
                f"- settings: {_pairs(about['settings'])}; from the environment: {_list(about['overridden'])}",
                "- Clock and worker CPU from the assignment to the last durable step, start-up left out. Postgres "
                "includes its background work. raw does the same with duplicates, so its row appears in both tables.",
                "- On a shared machine the ratios per round and the CPU per message count, not the rates.",
            ]
        )
    )
    return "\n\n".join(parts)


def _table(workload: Workload, title: str, measures: Sequence[Measure]) -> str:
    lines = [f"## {title}", "", _row(HEAD), _row(["---"] * len(HEAD))]
    for contender in CONTENDERS:
        runs = _runs(measures, contender, workload)
        if runs:
            ours = {one.round: one.rate for one in measures if (one.contender, one.workload) == (OURS, workload)}
            lines.append(_row(_cells(contender, runs, ours)))
    return "\n".join(lines)


def _runs(measures: Sequence[Measure], contender: Contender, workload: Workload) -> list[Measure]:
    wanted = workload if workload in contender.workloads else contender.workloads[0]
    return [one for one in measures if (one.contender, one.workload) == (contender.name, wanted)]


def _cells(contender: Contender, runs: Sequence[Measure], ours: Mapping[int, float]) -> Sequence[str]:
    rates = [one.rate for one in runs]
    ratios = [ours[one.round] / one.rate for one in runs if one.round in ours]
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    cpu = [_median([one.worker_us for one in runs]), _median([one.postgres_us for one in runs])]
    return (
        contender.name,
        f"{median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})",
        "1" if contender.name == OURS else f"{median(ratios):.2f} ({shown})" if ratios else "-",
        " / ".join([*cpu, _median([one.kafka_us for one in runs])]),
        f"{max(one.rss_mb for one in runs):.0f}",
        f"{runs[0].messages:,}",
        contender.lacks,
    )


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.1f}" if known else "-"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
