"""Every metric that a panel, a rule or a page names is declared in the table, and every one of the table is used."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.folder import DEPLOY, ROOT
from worker.observe.table import BY_NAME, METRICS

SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("",), "gauge": ("",), "info": ("",)}
SCRAPED = {metric.name + suffix: metric for metric in METRICS for suffix in SUFFIXES[metric.type]}
"""What a query may name, and the metric it belongs to."""
NAME = re.compile(r"\b(?:oncebox|process)_[a-z_]+[a-z]\b")
SELECTOR = re.compile(r"\b((?:oncebox|process)_[a-z_]+)\{([^}]*)\}")
ADDED = {"job", "instance", "namespace"}
"""Labels that Prometheus itself gives."""
PAGES = sorted(path for path in [ROOT / "README.md", *DEPLOY.rglob("*.md")] if path.name != "CHANGELOG.md")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana/oncebox.json").read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """Every query there is, with the name of its panel or alert."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


@pytest.mark.parametrize(("title", "query"), list(queries()))
def test_a_query_names_metrics_and_labels_that_exist(title: str, query: str) -> None:
    named = set(NAME.findall(query))
    assert named, title
    assert named <= set(SCRAPED), title
    for name, labels in SELECTOR.findall(query):
        used = set(re.findall(r"([a-z_]+)\s*[=!]", labels))
        assert used <= ADDED | set(SCRAPED[name].labels), f"{title}: {name}"
    grouped = {word for group in re.findall(r"\bby \(([^)]*)\)", query) for word in re.findall(r"\w+", group)}
    assert grouped <= ADDED | {"le"} | {label for name in named for label in SCRAPED[name].labels}, title


def test_every_metric_of_the_table_is_shown_or_watched() -> None:
    used = {SCRAPED[name].name for _, query in queries() for name in NAME.findall(query)}
    assert set(BY_NAME) - used == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_metrics_that_exist(page: Path) -> None:
    words = {word for word in re.findall(r"`([a-z_]+)`?(?:\{[^`]*`)?", page.read_text()) if NAME.fullmatch(word)}
    assert words <= set(SCRAPED) | set(BY_NAME)


def test_figures_about_the_whole_database_are_not_summed_over_workers() -> None:
    for title, query in queries():
        for name in NAME.findall(query):
            if SCRAPED[name].about == "database" and not query.startswith("label_values"):
                assert re.search(rf"\b(max|min)( by \([^)]*\))? \({name}\b|\b(max|min)\({name}\b", query), title


def test_panels_have_their_own_places_and_say_what_they_show() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & own, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= own
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"]["uid"] == "${datasource}"
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_alert_is_linked_from_a_panel() -> None:
    linked = {link["url"].partition("#")[2] for panel in panels() for link in panel.get("links", [])}
    unlinked = {rule["alert"].lower() for rule in rules()} - linked
    assert unlinked == set()
    assert linked <= {rule["alert"].lower() for rule in rules()}


def test_the_dashboard_is_chosen_by_datasource_group_and_topic() -> None:
    names = [variable["name"] for variable in dashboard()["templating"]["list"]]
    assert names[:4] == ["datasource", "job", "group", "topic"]
    used = json.dumps(dashboard()["panels"])
    assert all(f"${name}" in used or f"${{{name}}}" in used for name in names)
