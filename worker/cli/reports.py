"""Reports of replays and dry runs, for people."""

from collections.abc import Mapping
from typing import Any

from worker.cli.acting import print_fields, print_table


def print_report(report: Mapping[str, Any]) -> None:
    """What became of a job, or would."""
    if report.get("dry_run"):
        _print_forecast(report)
        return
    why = f" ({report['why']})" if report.get("why") else ""
    print_fields(
        {
            "job": report["job"],
            "state": f"{report['state']}{why}",
            "done": f"{report['done']} of {report['total']}",
            "outcomes": _joined(report["outcomes"]),
            "dead letters": _joined(report.get("dead_letters", {})),
            "refused": _joined(report.get("refused", {})),
            "parked now": _joined(report.get("parked", {})),
            "seconds": report["seconds"],
        }
    )
    _print_examples(report)
    if report["state"] in ("stopped", "cancelled", "failed") and report.get("kind") != "redrive":
        print(f"go on with: oncebox replay --resume {report['job']}")


def _print_forecast(report: Mapping[str, Any]) -> None:
    from worker.rules.tally import in_order

    classes = in_order(report["classes"])
    rows = [
        (line["handler"], line["tenant"], *(line["classes"].get(name, 0) for name in classes))
        for line in report["handlers"]
    ]
    if len(rows) > 1:
        rows.append(("total", None, *(report["classes"].get(name, 0) for name in classes)))
    print_table(("handler", "tenant", *classes), rows)
    _print_examples(report)
    if report.get("left_out"):
        print(f"left out by the filters: {report['left_out']}")
    if report.get("estimate_seconds") is not None:
        print(f"at {report['rate']:g} a second this takes about {report['estimate_seconds']:g} s")


def _print_examples(report: Mapping[str, Any]) -> None:
    for class_, places in sorted(report.get("examples", {}).items()):
        print(f"{class_}: first at {', '.join(places)}")


def _joined(counts: Mapping[str, int]) -> str | None:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or None
