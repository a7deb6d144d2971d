"""Asking a worker's HTTP port, and reading what it says."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def get(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    finally:
        connection.close()


def health(port: int, path: str = "/readyz") -> tuple[int, dict[str, Any]]:
    """Status and checks."""
    status, _, body = get(port, path)
    return status, json.loads(body)["checks"]


class Scraped:
    """One scrape."""

    def __init__(self, port: int, accept: str = "") -> None:
        status, self.content_type, self.text = get(port, "/metrics", Accept=accept)
        assert status == 200, self.text
        read: Any = read_openmetrics if "openmetrics" in self.content_type else read_text
        self.families = list(read(self.text))
        self.values: Values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """The sum over all samples of this name with these labels."""
        wanted = set(labels.items())
        found = [value for (n, given), value in self.values.items() if n == name and wanted <= given]
        assert found, f"no {name} {labels}"
        return sum(found)

    def by(self, name: str, label: str) -> Mapping[str, float]:
        """The values of a metric by one of its labels."""
        found: dict[str, float] = {}
        for (n, given), value in self.values.items():
            if n == name:
                key = dict(given)[label]
                found[key] = found.get(key, 0.0) + value
        return found
