"""The plot and the table of the README, from a report: `python -m tests.bench.readme bench-report/report.json`."""

import sys
from pathlib import Path

from tests.bench.contenders import ALL, OURS
from tests.bench.report import Report
from tests.bench.report.plots import draw_rates
from tests.bench.report.runs import Runs, rate, worker_us
from tests.bench.report.tables import table

PLOT = Path(__file__).with_name("readme.svg")
ROWS = ("raw", OURS, "tuned32", "pooled32", "faststream", "idemkit", "dbos")


def short_table(runs: Runs) -> str:
    """Rate, CPU and what is not promised, the ceiling first."""
    what = {each.name: (each.what, each.lacks) for each in ALL}
    ours = runs.of("a", OURS)
    rows = []
    for name in ROWS:
        rates, cpu = runs.spread("a", name, rate), runs.spread("a", name, worker_us)
        ratio = runs.ratio(runs.of("a", name), ours, rate)
        if rates is not None and cpu is not None and ratio is not None:
            rows.append((name, f"{rates.median:,.0f}", f"{ratio.median:.2f}", f"{cpu.median:,.0f}", *what[name]))
    return table(("", "msg/s", "/ oncebox", "worker CPU us/msg", "what it is", "does not guarantee"), rows)


def main() -> None:
    runs = Report.read(Path(sys.argv[1])).runs
    draw_rates(Runs([one for one in runs.measures if one.contender in ROWS]), PLOT, ("a",))
    print(short_table(runs))


if __name__ == "__main__":
    main()
