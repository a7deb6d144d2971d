"""What comes after a death: settlement, and the time an entry has left."""

from tests.ledger.conftest import Schema, stop_renewing
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import State


async def settle_all(schema: Schema, dead: PostgresLedger, by: PostgresLedger) -> dict[State, int]:
    await stop_renewing(dead)
    await schema.end(dead.session.id)
    return await by.settling.settle()


async def expire_in(schema: Schema, seconds: float) -> None:
    await schema.execute(
        "UPDATE oncebox.entries SET expires_at = clock_timestamp() + $1::float8 * interval '1 second'", seconds
    )


async def seconds_left(schema: Schema) -> float:
    left: float = await schema.value(
        "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM oncebox.entries"
    )
    return left
