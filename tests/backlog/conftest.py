"""The engine's sites, and what a replay says, for stories about backlogs."""

import pytest

from tests.backlog.telling import Telling
from tests.engine.conftest import site

__all__ = ["site", "telling"]


@pytest.fixture
def telling() -> Telling:
    return Telling()
