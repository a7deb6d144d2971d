"""A registry for replays in processes of their own: its effects are rows that commit with the completion."""

import asyncio
import os
from typing import Any

from pydantic import BaseModel

from worker import Registry, Transaction

registry = Registry()
_effects = f'"{os.environ.get("ONCEBOX_SCHEMA", "oncebox")}".effects'
_seconds = float(os.environ.get("BACKLOG_SECONDS", "0"))


class Order(BaseModel):
    """What the stories send."""

    id: str
    amount: int = 1


@registry.handler(os.environ.get("BACKLOG_TOPIC", "nowhere"), scope="jobs", key="id", kind="transactional")
async def order(message: Order, transaction: Transaction) -> dict[str, Any]:
    if _seconds:
        await asyncio.sleep(_seconds)
    await transaction.execute(f"INSERT INTO {_effects} (key) VALUES ($1)", message.id)
    return {"id": message.id}
