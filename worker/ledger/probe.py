"""Looks at a Postgres without changing it: does it let us in, does it keep what it acknowledges, is the schema ours."""

from dataclasses import dataclass

from worker.ledger.connect import connector
from worker.ledger.explain import explain_database_error
from worker.ledger.migrate import pending
from worker.ledger.queries import load_queries
from worker.settings import DatabaseSettings


@dataclass(frozen=True, slots=True)
class Server:
    """What was found."""

    version: str
    # Settings of the server under which an acknowledged claim can vanish in a crash.
    undurable: tuple[str, ...]
    max_connections: int
    # Migrations that `oncebox migrate` would apply.
    pending: tuple[str, ...]


async def look(settings: DatabaseSettings) -> Server:
    """Connect as a worker would, and look; OnceboxError says why it cannot."""
    try:
        connection = await connector(settings, role="check")()
        try:
            row = await connection.fetchrow(load_queries(settings.schema_name)["describe_server"])
            missing = await pending(connection, settings.schema_name)
        finally:
            await connection.close(timeout=2)
    except Exception as error:
        raise explain_database_error(error, settings.url.get_secret_value()) from error
    assert row is not None
    wanted = {"fsync": {"on"}, "full_page_writes": {"on"}, "synchronous_commit": {"on", "remote_apply"}}
    return Server(
        version=row["version"],
        undurable=tuple(f"{name}={row[name]}" for name, fine in wanted.items() if row[name] not in fine),
        max_connections=int(row["max_connections"]),
        pending=tuple(f"{step.number:04d}_{step.name}" for step in missing),
    )
