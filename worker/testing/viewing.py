"""Looking at the tables and at what was published, in the words of a test."""

from collections.abc import Callable

from worker.rules.claims import Outcome
from worker.rules.outgoing import Outgoing
from worker.testing.delivered import Delivered, EntryView, decode
from worker.testing.deliveries import Delivery
from worker.testing.memory.tables import Entry, Tables
from worker.testing.outbox import Outbox, is_dead, is_reply, text
from worker.testing.topics import position_of

_ANSWERED = (Outcome.EXECUTED, Outcome.REJECTED, Outcome.REPLAYED)


def view_delivery(delivery: Delivery, tables: Tables, outbox: Outbox) -> Delivered:
    """What has become of a record by now."""
    entry = None if delivery.id is None else tables.entries.get(delivery.id)
    about = outbox.about(position_of(delivery.record))
    dead = _last(about, is_dead)
    # Another payload's result is never shown: misuse has an entry, but not one of its own.
    result = entry.result if entry is not None and delivery.outcome in _ANSWERED else None
    return Delivered(
        record=delivery.record,
        outcome=delivery.outcome,
        crash=delivery.died if delivery.outcome is None else None,
        result=None if result is None else decode(result),
        raw=None if result is None else result.body,
        status=None if result is None else result.status.name.lower(),
        code=None if result is None else result.code,
        reason=_header(dead, "oncebox.reason") or _parked_because(delivery, tables),
        detail=_header(dead, "__dlq.errors.message"),
        dead_letter=dead,
        published=_last(about, lambda o: not is_dead(o) and not is_reply(o)),
        reply=_last(about, is_reply),
        state=None if entry is None else entry.state.name.lower(),
        fence=None if entry is None else entry.fence,
        attempts=0 if entry is None else entry.attempts,
        runs=delivery.runs,
        errors=tuple(delivery.errors),
    )


def view_entry(tables: Tables, entry: Entry) -> EntryView:
    """What an entry says, in words."""
    result = entry.result
    return EntryView(
        state=entry.state.name.lower(),
        kind=entry.kind.name.lower(),
        fence=entry.fence,
        attempts=entry.attempts,
        crashes=entry.crashes,
        held=entry.held,
        result=None if result is None else decode(result),
        raw=None if result is None else result.body,
        status=None if result is None else result.status.name.lower(),
        code=None if result is None else result.code,
        due_in=None if entry.due_at is None else entry.due_at - tables.clock(),
        error=entry.error,
        expires_at=tables.clock.date(entry.expires_at),
    )


def _last(about: list[Outgoing], wanted: Callable[[Outgoing], bool]) -> Outgoing | None:
    return next((o for o in reversed(about) if wanted(o)), None)


def _header(outgoing: Outgoing | None, name: str) -> str | None:
    value = None if outgoing is None else text(outgoing, name)
    return None if value is None else value.decode()


def _parked_because(delivery: Delivery, tables: Tables) -> str | None:
    position = position_of(delivery.record)
    return next((row.reason for place, row in tables.parked.items() if place[1:] == position), None)
