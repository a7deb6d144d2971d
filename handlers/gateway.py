"""A payment provider that honours idempotency keys, as most real ones do."""

import asyncio
from typing import Protocol
from uuid import uuid4

from .book import Book

_NETWORK_SECONDS = 0.003


class Delivery(Protocol):
    delivery_id: str


class Accounts:
    """Knows who pays for a delivery."""

    async def find(self, message: Delivery) -> str:
        return f"account of {message.delivery_id}"


class Gateway:
    """Charges accounts. Its book has a line for every request, also for those that its keys made harmless."""

    def __init__(self) -> None:
        self._book = Book("gateway")

    async def charge(self, account: str, amount_cents: int, *, idempotency_key: str) -> str:
        """Take the money once per key; a repeated request gets the receipt of the first."""
        await asyncio.sleep(_NETWORK_SECONDS)
        receipt = f"receipt-{uuid4().hex[:12]}"
        first = await self._book.write(idempotency_key, account=account, amount_cents=amount_cents, receipt=receipt)
        await asyncio.sleep(_NETWORK_SECONDS)
        return str(first["receipt"])

    async def find(self, idempotency_key: str) -> str | None:
        """The receipt for this key, if money was taken."""
        first = await self._book.find(idempotency_key)
        return None if first is None else str(first["receipt"])


accounts = Accounts()
gateway = Gateway()
