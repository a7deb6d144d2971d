"""The measures as plots; without matplotlib there are none."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.bench.contenders import OURS
from tests.bench.report.runs import Runs, rate
from tests.bench.report.tables import latencies

OURS_COLOUR, OTHER_COLOUR = "#1f6feb", "#9aa4af"
STYLE = {
    "svg.fonttype": "none",  # text stays text: no font travels inside the file
    "svg.hashsalt": "oncebox",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}


def draw_all(runs: Runs, folder: Path) -> list[Path]:
    """Every plot there are measures for."""
    if find_spec("matplotlib") is None:
        return []
    drawn = [
        draw_rates(runs, folder / "throughput.svg", ("a", "b", "c", "e")),
        draw_rates(runs, folder / "readme.svg", ("a",)),
        draw_latencies(runs, folder / "latency.svg"),
        draw_memory(runs, folder / "memory.svg"),
        draw_rows(runs, folder / "rows.svg"),
    ]
    return [file for file in drawn if file is not None]


def draw_rates(runs: Runs, file: Path, workloads: Sequence[str]) -> Path | None:
    """Messages per second, a panel per workload, a bar per contender; whiskers from the least to the most."""
    shown = {letter: found for letter in workloads if (found := _rates(runs, letter))}
    if not shown:
        return None
    pyplot = _pyplot()
    with _style():
        heights = [len(found) for found in shown.values()]
        size = (7.2, 0.9 + 0.36 * sum(heights) + 0.5 * len(shown))
        figure, panels = pyplot.subplots(len(shown), 1, figsize=size, height_ratios=heights, squeeze=False)
        for panel, (letter, found) in zip(panels[:, 0], shown.items(), strict=True):
            _bars(panel, _RATE_TITLES[letter], found)
        return _save(figure, file)


_RATE_TITLES = {
    "a": "messages per second, unique keys, no-op handler",
    "b": "messages per second, every message a duplicate",
    "c": "messages per second, 30 % duplicates",
    "e": "messages per second, one INSERT each",
}


def _rates(runs: Runs, letter: str) -> dict[str, tuple[float, float, float]]:
    """Median, least and most, the fastest first."""
    found = {}
    for name in dict.fromkeys(one.contender for one in runs.of(letter)):
        spread = runs.spread(letter, name, rate)
        assert spread is not None
        found[name] = (spread.median, min(spread.values), max(spread.values))
    return dict(sorted(found.items(), key=lambda pair: -pair[1][0]))


def _bars(panel: Any, title: str, found: dict[str, tuple[float, float, float]]) -> None:
    names = list(found)
    medians = [middle for middle, _, _ in found.values()]
    whiskers = [[m - low for m, low, _ in found.values()], [high - m for m, _, high in found.values()]]
    colours = [OURS_COLOUR if name.startswith(OURS) else OTHER_COLOUR for name in names]
    panel.barh(names, medians, color=colours, xerr=whiskers, error_kw={"ecolor": "#57606a", "lw": 1})
    panel.invert_yaxis()
    widest = max(high for _, _, high in found.values())
    panel.set_xlim(0, widest * 1.16)
    for place, (middle, _, high) in enumerate(found.values()):
        panel.text(high + widest * 0.015, place, f"{middle:,.0f}", va="center")
    panel.set_title(title, loc="left", fontsize=10)
    panel.xaxis.set_visible(False)
    panel.spines["bottom"].set_visible(False)


def draw_latencies(runs: Runs, file: Path) -> Path | None:
    """Which share of the messages was done within which time."""
    found = latencies(runs)
    if not found:
        return None
    pyplot = _pyplot()
    with _style():
        figure, panel = pyplot.subplots(figsize=(7.2, 3.6))
        for name, values in found.items():
            ordered = sorted(values)
            shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
            panel.step(ordered, shares, where="post", label=name, lw=2 if name.startswith(OURS) else 1.2)
        panel.set_xscale("log")
        panel.set(xlabel="milliseconds, 50 messages per second", ylabel="share of messages", ylim=(0, 1.01))
        panel.grid(alpha=0.3)
        panel.legend(frameon=False, loc="lower right")
        return _save(figure, file)


def draw_memory(runs: Runs, file: Path) -> Path | None:
    """Resident memory while a backlog drains."""
    found = [one for one in runs.of("g", OURS) if one.detail["memory"]]
    if not found:
        return None
    pyplot = _pyplot()
    with _style():
        figure, panel = pyplot.subplots(figsize=(7.2, 3.0))
        for one in found:
            panel.plot(*zip(*one.detail["memory"], strict=True), color=OURS_COLOUR)
        title = f"resident memory while {found[0].messages:,} messages are drained"
        panel.set(xlabel="seconds", ylabel="MB", title=title)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        return _save(figure, file)


def draw_rows(runs: Runs, file: Path) -> Path | None:
    """The rate by rows in the table, against the empty table of the same round."""
    cases = runs.cases("h")
    if len(cases) < 2:
        return None
    pyplot = _pyplot()
    with _style():
        figure, panel = pyplot.subplots(figsize=(7.2, 3.0))
        ratios = [runs.ratio(runs.of("h", OURS, case), runs.of("h", OURS, cases[0]), rate) for case in cases]
        for place, ratio in enumerate(ratios):
            assert ratio is not None
            panel.plot([place] * len(ratio.values), ratio.values, "o", color=OTHER_COLOUR)
        medians = [ratio.median for ratio in ratios if ratio is not None]
        panel.plot(range(len(cases)), medians, "o-", color=OURS_COLOUR)
        panel.set_xticks(range(len(cases)), cases)
        panel.set(ylabel="rate / rate with an empty table")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        return _save(figure, file)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    return pyplot


def _style() -> AbstractContextManager[None]:
    style: AbstractContextManager[None] = _pyplot().rc_context(STYLE)
    return style


def _save(figure: Any, file: Path) -> Path:
    figure.tight_layout()
    figure.savefig(file, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")), facecolor="white")
    _pyplot().close(figure)
    # No addresses: neither the document type nor an empty description is needed to show the picture.
    text = re.sub(r"<!DOCTYPE.*?>\n?|<metadata>.*?</metadata>\n?", "", file.read_text(), flags=re.DOTALL)
    file.write_text(text)
    return file
