"""The audit: who changed what by hand, and why."""

from collections.abc import Mapping
from dataclasses import dataclass

from worker.ledger.connect import Connection
from worker.ledger.finals import text


@dataclass(frozen=True, slots=True)
class Act:
    """One change by an operator."""

    actor: str
    action: str
    subject: str
    reason: str
    old: str | None = None
    new: str | None = None
    detail: str | None = None


async def write_audit(tx: Connection, queries: Mapping[str, str], act: Act) -> None:
    """Write an act in the transaction of the change itself."""
    words = (act.actor, act.action, act.subject, act.reason, act.old, act.new, act.detail)
    await tx.execute(queries["write_audit"], *(None if word is None else text(word) for word in words))
