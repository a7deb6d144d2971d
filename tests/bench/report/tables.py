"""The measures as tables in Markdown."""

from collections.abc import Sequence

from tests.bench.contenders import ALL, OURS
from tests.bench.measure import Measure
from tests.bench.report.runs import Runs, percentile, rate, seconds, worker_us
from tests.bench.report.targets import targets

SERVERS = ("postgres", "kafka", "redis")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def of_targets(runs: Runs) -> str:
    rows = [(f"({t.workload})", t.what, t.wanted, t.found.shown(), t.verdict) for t in targets(runs)]
    return table(("", "what", "must be", "median (min-max of rounds)", "reached"), rows)


def of_contenders(runs: Runs, workload: str) -> str:
    """Rates beside one another, with what each does not guarantee."""
    ours = runs.of(workload, OURS)
    lacks = {each.name: each.lacks for each in ALL}
    rows = []
    for name, case in dict.fromkeys((one.contender, one.case) for one in runs.measures if one.workload == workload):
        found = runs.of(workload, name, case)
        ratio = runs.ratio(ours, found, rate)
        rates = runs.spread(workload, name, rate, case)
        assert rates is not None
        rows.append(
            (
                f"{name} {case}".strip(),
                rates.shown(0),
                "1" if name == OURS else "-" if ratio is None else ratio.shown(),
                cpu(runs, found),
                f"{max(one.rss_mb for one in found):.0f}",
                f"{found[0].messages:,}",
                "nothing: effect and completion commit together" if (workload, name) == ("e", OURS) else lacks[name],
            )
        )
    head = ("contender", "msg/s", "oncebox / it", "CPU us/msg worker / Postgres / broker / Redis", "RSS MB", "messages")
    return table((*head, "does not guarantee"), rows)


def cpu(runs: Runs, found: Sequence[Measure]) -> str:
    """Medians of the worker's and the servers' CPU per message."""

    def middle(values: Sequence[float]) -> str:
        return f"{percentile(values, 50):.1f}"

    shown = [middle([worker_us(one) for one in found])]
    for server in SERVERS:
        known = all(server in one.server_us for one in found)
        shown.append(middle([one.server_us[server] for one in found]) if known else "-")
    return " / ".join(shown)


def of_waits(runs: Runs) -> str:
    rows = []
    for case in runs.cases("d"):
        ours, floor = runs.of("d", OURS, case), runs.of("d", "floor", case)
        ratio = runs.ratio(ours, floor, seconds)
        if ratio is not None:
            took = [percentile([one.seconds for one in found], 50) for found in (floor, ours)]
            disorder = sum(one.detail["disorder"] for one in ours)
            rows.append((case, f"{ours[0].messages:,}", *(f"{s:.2f}" for s in took), ratio.shown(), str(disorder)))
    return table(("Kafka keys", "messages", "floor s", "oncebox s", "oncebox / floor", "out of order"), rows)


def of_latencies(runs: Runs) -> str:
    rows = []
    for name, values in latencies(runs).items():
        rows.append((name, *(f"{percentile(values, percent):.2f}" for percent in (50, 90, 99)), f"{len(values):,}"))
    return table(("milliseconds", "p50", "p90", "p99", "messages"), rows)


def latencies(runs: Runs) -> dict[str, list[float]]:
    """Every latency of every round, by what was timed."""
    bare = runs.of("f", "arriving")
    pairs = [pair for one in bare for pair in zip(one.detail["delays_ms"], one.detail["commits_ms"], strict=True)]
    found = {
        "oncebox, produce to completed": [ms for one in runs.of("f", OURS) for ms in one.detail["latencies_ms"]],
        "bare consumer, produce to arrival": [delay for delay, _ in pairs],
        "two bare commits": [commits for _, commits in pairs],
        "bare consumer and two commits": [delay + commits for delay, commits in pairs],
    }
    return {name: values for name, values in found.items() if values}


def of_pruning(runs: Runs) -> str:
    rows = []
    for one in runs.of("j", OURS):
        pruned, spent = one.detail["pruned"], one.detail["pruning_seconds"]
        for when, name in (("quiet", "without"), ("busy", f"while {pruned:,} entries were pruned in {spent:.0f} s")):
            found = one.detail[when]
            rows.append((name, *(f"{found[f'p{percent}']:.2f}" for percent in (50, 90, 99)), f"{found['messages']:,}"))
    return table(("milliseconds from produce to completed", "p50", "p90", "p99", "messages"), rows)


def of_memory(runs: Runs) -> str:
    rows = []
    for one in runs.of("g", OURS):
        samples = [mb for _, mb in one.detail["memory"]] or [one.rss_mb]
        places = [samples[int(share * (len(samples) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)]
        shown = [f"{mb:.0f}" for mb in (*places, one.rss_mb)]
        rows.append((f"{one.messages:,}", f"{one.seconds:.1f}", *shown))
    return table(("messages", "seconds", "MB at 0 %", "25 %", "50 %", "75 %", "100 %", "peak"), rows)


def of_cases(runs: Runs, workload: str) -> str:
    """Our own rate, by what varies; the first case is the measure of the others."""
    cases = runs.cases(workload)
    rows = []
    for case in cases:
        found = runs.of(workload, OURS, case)
        ratio = runs.ratio(found, runs.of(workload, OURS, cases[0]), rate)
        rates = runs.spread(workload, OURS, rate, case)
        assert ratio is not None
        assert rates is not None
        rows.append((case, rates.shown(0), ratio.shown(), cpu(runs, found), f"{found[0].messages:,}"))
    head = ("", "msg/s", f"/ {cases[0]}", "CPU us/msg worker / Postgres / broker / Redis", "messages")
    return table(head, rows)
