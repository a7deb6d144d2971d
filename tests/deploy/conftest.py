"""What tests of a whole deployment share with the engine's."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.deploy.people import People, hired
from tests.engine.conftest import site
from tests.engine.site import Site

__all__ = ["people", "site"]


@pytest_asyncio.fixture
async def people(site: Site) -> AsyncIterator[People]:
    """A site whose users have only what they were granted."""
    async with hired(site) as made:
        yield made
