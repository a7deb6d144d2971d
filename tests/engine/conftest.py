"""Sites for the engine's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.engine.site import Site


@pytest_asyncio.fixture
async def site(
    kafka: str, database_url: str, schema: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    """A migrated site with nothing on it."""
    monkeypatch.setenv("SITE_FOLDER", str(tmp_path))
    made = Site(kafka, database_url, schema, group, tmp_path)
    await made.migrate()
    try:
        yield made
    finally:
        made.close()
