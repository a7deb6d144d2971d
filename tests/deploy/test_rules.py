"""Alerts: accepted by promtool, each firing when it should, each with its entry in the runbook."""

import re
from typing import Any

import pytest
import yaml

from tests.deploy.folder import DEPLOY, ROOT, run
from tests.deploy.prometheus import program

RULES = DEPLOY / "prometheus/rules.yml"
TESTS = DEPLOY / "prometheus/rules_test.yml"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule
]
NAMES = [rule["alert"] for rule in ALERTS]
PARTS = ("**Means.**", "**Look.**", "**Do.**", "**Do not.**")


def entries() -> dict[str, str]:
    """The runbook by heading."""
    _, *sections = re.split(r"^## (?=\w+$)", (DEPLOY / "runbook.md").read_text(), flags=re.MULTILINE)
    return {section.partition("\n")[0]: section for section in sections}


def test_promtool_accepts_the_rules() -> None:
    done = run(program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_tests_of_the_rules_pass() -> None:
    done = run(program("promtool"), "test", "rules", TESTS.name, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_firing_by_a_unit_test() -> None:
    text = TESTS.read_text().replace('".+Away"', '"OnceboxPostgresAway|OnceboxKafkaAway"')
    assert [name for name in NAMES if name not in text] == []


@pytest.mark.parametrize("rule", ALERTS, ids=NAMES)
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    assert rule["annotations"]["runbook_url"] == f"runbook.md#{rule['alert'].lower()}"


def test_the_runbook_has_one_entry_per_alert_and_no_other() -> None:
    assert list(entries()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_says_what_it_means_how_to_look_what_to_do_and_what_not(name: str) -> None:
    places = [entries()[name].find(part) for part in PARTS]
    assert places == sorted(places)
    assert -1 not in places


def test_the_runbook_names_commands_and_settings_that_are_promised() -> None:
    """Commands by the list that is fixed for the product, settings by the worker's own."""
    from worker.settings.model import all_settings

    text = (DEPLOY / "runbook.md").read_text()
    verbs = {"run", "check", "migrate", "sweep", "keys", "dlq", "replay", "jobs", "feeds", "pause", "resume", "skip"}
    assert set(re.findall(r"`oncebox (\w+)", text)) <= verbs
    known = {variable for setting in all_settings(()) for variable in setting.variables}
    assert set(re.findall(r"\b(?:ONCEBOX|KAFKA)_[A-Z_]+\b", text)) <= known


def test_the_runbook_names_log_lines_that_are_written() -> None:
    named = set(re.findall(r"\blog(?: names the entry)? \(`(\w+)`", (DEPLOY / "runbook.md").read_text()))
    named |= set(re.findall(r"\(`(\w+_\w+)`\)", (DEPLOY / "runbook.md").read_text()))
    code = "".join(path.read_text() for path in (ROOT / "worker").rglob("*.py"))
    assert named
    assert {name for name in named if f'"{name}"' not in code} == set()
