"""Every test of this folder runs on both stores."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conformance.in_memory import InMemory
from tests.conformance.on_postgres import OnPostgres
from tests.conformance.stores import Store


@pytest.fixture(params=["memory", "postgres"])
def unopened(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        return InMemory()
    return OnPostgres(request.getfixturevalue("database_url"), request.getfixturevalue("schema"))


@pytest_asyncio.fixture
async def store(unopened: Store) -> AsyncIterator[Store]:
    yield unopened
    await unopened.close()
