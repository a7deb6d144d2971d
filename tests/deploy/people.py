"""Users of a ledger who may do no more than deploy/grants.sql lets them."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.deploy.folder import DEPLOY, absent
from tests.engine.site import Site

GRANTS = (DEPLOY / "grants.sql").read_text()
ROLES = ("worker", "operator", "reader")


@dataclass(frozen=True)
class People:
    """One user per role of a site's schema; each can log in."""

    site: Site
    password: str

    def user(self, role: str) -> str:
        return f"{self.site.schema}_{role}_user"

    def url(self, role: str) -> str:
        """Where this user finds the ledger."""
        parts = urlsplit(self.site.database_url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{self.user(role)}:{self.password}@{host}"))

    @asynccontextmanager
    async def connection(self, role: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        connection = await asyncpg.connect(self.url(role))
        try:
            yield connection
        finally:
            await connection.close()


async def apply_grants(site: Site) -> None:
    """The file as psql would run it, for this site's schema."""
    connection = await asyncpg.connect(site.database_url, server_settings={"oncebox.schema": site.schema})
    try:
        await connection.execute(GRANTS)
    finally:
        await connection.close()


@asynccontextmanager
async def hired(site: Site) -> AsyncIterator[People]:
    """A user for each role; gone afterwards, roles included, for they belong to the whole server."""
    owner = await asyncpg.connect(site.database_url)
    people = People(site, secrets.token_hex(8))
    try:
        if not await owner.fetchval("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"):
            absent("the database user may not make roles")
        await apply_grants(site)
        for role in ROLES:
            await owner.execute(f"CREATE ROLE {people.user(role)} LOGIN PASSWORD '{people.password}'")
            await owner.execute(f"GRANT {site.schema}_{role} TO {people.user(role)}")
        yield people
    finally:
        for role in ROLES:
            for name in (people.user(role), f"{site.schema}_{role}"):
                if await owner.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", name):
                    await owner.execute(f"DROP OWNED BY {name}")
                    await owner.execute(f"DROP ROLE {name}")
        await owner.close()
