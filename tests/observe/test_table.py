"""The one table of metrics keeps the conventions, and the operators' page says what it says."""

import re
from pathlib import Path

import pytest

from worker.observe.page import page
from worker.observe.table import METRICS, Metric

PAGE = Path(__file__).parents[2] / "deploy" / "metrics.md"
# What a label may be called: each has a bounded set of values, by configuration or by our own words.
BOUNDED = {"topic", "partition", "operation", "outcome", "reason", "result", "state", "store", "op", "group"}
BOUNDED |= {"duty", "check", "role", "version", "python"}
UNITS = ("_seconds", "_bytes", "_total", "_info")


def test_the_page_for_operators_is_generated_from_the_table() -> None:
    assert PAGE.read_text() == page(), "run: python -m worker.observe.page > deploy/metrics.md"


def test_every_name_is_declared_once() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_keeps_the_naming_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.startswith("process_" if metric.about == "process" else "oncebox_")
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert metric.name.endswith("_info") == (metric.type == "info")
    assert not re.search(r"_(ms|millis|minutes|kb|mb)\b", metric.name), "base units"
    assert metric.help.endswith(".")
    assert set(metric.labels) <= BOUNDED
    assert bool(metric.buckets) == (metric.type == "histogram")
    assert metric.type != "histogram" or metric.name.endswith(UNITS)
    assert list(metric.buckets) == sorted(set(metric.buckets))
