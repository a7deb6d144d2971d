"""A box around the shop, opened for each test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.testing.shop import gateway, registry
from worker.testing import Box


@pytest.fixture(autouse=True)
def fresh_gateway() -> None:
    gateway.reset()


@pytest_asyncio.fixture
async def box() -> AsyncIterator[Box]:
    async with Box(registry) as opened:
        yield opened
