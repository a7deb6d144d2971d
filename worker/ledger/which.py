"""Which ledger this is: its id, the key that authenticates what the filter says of it, and its clock."""

from dataclasses import dataclass

from worker.ledger.clock import clock
from worker.ledger.ledger import PostgresLedger


@dataclass(frozen=True, slots=True)
class Which:
    """One ledger among all."""

    id: bytes
    filter_key: bytes
    ahead: float  # the database's clock minus ours

    def now(self) -> float:
        """The database's time in epoch seconds; rather a round trip too late than too early."""
        return clock() + self.ahead


async def read_which(ledger: PostgresLedger) -> Which:
    """Ask the ledger who it is."""
    async with ledger.line() as line:
        sent = clock()
        (row,) = await line.fetch(ledger.queries["read_ledger"])
    return Which(row["id"].bytes, row["filter_key"], row["now"] - sent)
