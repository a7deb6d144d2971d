"""The engine's sites, and workers in this process whose HTTP port is known."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.conftest import own_kafka, own_postgres, site, site_on_own_kafka, site_on_own_postgres
from worker.observe.logs import notice

__all__ = ["own_kafka", "own_postgres", "site", "site_on_own_kafka", "site_on_own_postgres"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What workers in this process have told so far."""
    heard: list[tuple[str, dict[str, Any]]] = []

    def listening(event: str, **fields: Any) -> None:
        heard.append((event, fields))
        notice(event, **fields)

    monkeypatch.setattr("worker.app.serving.notice", listening)
    return heard


@pytest.fixture
def port(told: list[tuple[str, dict[str, Any]]]) -> Callable[[], int]:
    """The HTTP port of the worker that was started last; 0 while there is none."""
    return lambda: next((fields["port"] for event, fields in reversed(told) if event == "http_opened"), 0)
