"""Transactional: the order and the completion of its entry commit together, so the effect happens exactly once."""

import os
from collections.abc import AsyncIterator

import asyncpg
from pydantic import BaseModel

from worker import Registry, Transaction

registry = Registry()


class Details(BaseModel):
    """One order as the shop sends it."""

    client_reference: str
    item: str
    quantity: int


class Order(BaseModel):
    """The webhook around it."""

    order: Details


@registry.lifespan
async def table() -> AsyncIterator[dict[str, object]]:
    """Create the table; of several workers that start together, one after another."""
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('example_orders'))")
            await connection.execute("SET LOCAL client_min_messages = warning")
            # No unique constraint on the reference: that a second row never comes is oncebox's work.
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS example_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                " client_reference text NOT NULL, item text NOT NULL, quantity int NOT NULL)"
            )
    finally:
        await connection.close()
    yield {}


@registry.handler("orders", scope="jobs", key="order.client_reference", kind="transactional")
async def record_order(message: Order, transaction: Transaction) -> int:
    """Write the order down, and answer with its number."""
    order = message.order
    number: int = await transaction.fetchval(
        "INSERT INTO example_orders (client_reference, item, quantity) VALUES ($1, $2, $3) RETURNING id",
        order.client_reference,
        order.item,
        order.quantity,
    )
    return number
