"""How entries look on a screen and in JSON. Private keys cannot be seen here: they are not stored."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from worker.rules.durations import format_duration

if TYPE_CHECKING:
    from worker.ledger.keys import Claim, Doubt, Entry, Story


def length(given: timedelta) -> str:
    """A length of time in its two largest units."""
    seconds = int(abs(given.total_seconds()))
    if seconds >= 86_400:
        seconds -= seconds % 3_600
    elif seconds >= 3_600:
        seconds -= seconds % 60
    return format_duration(timedelta(seconds=seconds))


def when(moment: datetime | None, now: datetime) -> str | None:
    """A moment, and how long ago or ahead it is."""
    if moment is None:
        return None
    distance = moment - now
    how = f"{length(distance)} ago" if distance <= timedelta(0) else f"in {length(distance)}"
    return f"{moment:%Y-%m-%d %H:%M:%S %Z} ({how})"


def shown_key(entry: "Entry") -> str:
    if entry.key is None:
        return "(private)"
    return entry.key.decode(errors="backslashreplace")


def entry_fields(entry: "Entry", claim: "Claim | None", doubt: "Doubt | None") -> dict[str, Any]:
    """The lines about one entry, for people."""
    now = entry.now
    return {
        "entry": entry.id,
        "key": shown_key(entry),
        "tenant": None if entry.tenant is None else entry.tenant.decode(errors="backslashreplace"),
        "state": _state(entry, doubt),
        "kind": entry.kind.name.lower(),
        "fence": entry.fence,
        "session": _session(entry, claim),
        "result": _result(entry),
        "attempts": f"{entry.attempts} failed, {entry.crashes} crashed",
        "last error": entry.error,
        "first failed": when(entry.failed_at, now),
        "due": when(entry.due_at, now),
        "next probe": None if doubt is None else f"{when(doubt.due_at, now)}, {doubt.probes} so far",
        "quiet from": None if doubt is None else f"{when(doubt.quiet_until, now)}",
        "dead-lettered": None if doubt is None else when(doubt.reported_at, now),
        "source": entry.source,
        "fingerprint": None if entry.fingerprint is None else entry.fingerprint.hex(),
        "held by": f"{entry.held} parked or owed" if entry.held else None,
        "kept until": when(entry.expires_at, now),
    }


def entry_json(entry: "Entry", claim: "Claim | None", doubt: "Doubt | None") -> dict[str, Any]:
    """One entry for programs."""
    return {
        "id": entry.id,
        "scope": entry.operation.scope,
        "operation": entry.operation.operation,
        "tenant": entry.tenant,
        "key": entry.key,
        "key_hex": None if entry.key is None else entry.key.hex(),
        "private": entry.operation.secret is not None,
        "state": entry.state.name.lower(),
        "kind": entry.kind.name.lower(),
        "fence": entry.fence,
        "attempts": entry.attempts,
        "crashes": entry.crashes,
        "held": entry.held,
        "error": entry.error,
        "result_status": None if entry.status is None else entry.status.name.lower(),
        "result_code": entry.code,
        "result_bytes": entry.result_bytes,
        "due_at": entry.due_at,
        "failed_at": entry.failed_at,
        "expires_at": entry.expires_at,
        "expires_in_seconds": (entry.expires_at - entry.now).total_seconds(),
        "source": entry.source,
        "fingerprint": None if entry.fingerprint is None else entry.fingerprint.hex(),
        "session": None if claim is None else _claim_json(claim),
        "doubt": None if doubt is None else _doubt_json(doubt),
    }


def story_json(story: "Story") -> dict[str, Any]:
    """Everything about one id, for programs."""
    about: dict[str, Any] = {"id": story.id, "state": story.state}
    if story.entry is not None:
        about = entry_json(story.entry, story.claim, story.doubt)
    for name in ("parked", "history", "acts"):
        about[name] = [dict(row) for row in getattr(story, name)]
    return about


def _state(entry: "Entry", doubt: "Doubt | None") -> str:
    state = entry.state.name.lower()
    if doubt is None:
        return state
    return f"{state} since {when(doubt.since, entry.now)}"


def _session(entry: "Entry", claim: "Claim | None") -> str | None:
    if claim is not None:
        return str(claim)
    return "nobody has this claim" if entry.state.name == "IN_PROGRESS" else None


def _result(entry: "Entry") -> str | None:
    if entry.status is None:
        return None
    code = f" ({entry.code})" if entry.code else ""
    kind = f", {entry.content_type.mime}" if entry.content_type else ""
    return f"{entry.status.name.lower()}{code}, {entry.result_bytes or 0} bytes{kind}"


def _claim_json(claim: "Claim") -> dict[str, Any]:
    return {
        "id": claim.session,
        "role": claim.role,
        "host": claim.host,
        "pid": claim.pid,
        "alive": claim.alive,
        "lease_left_seconds": claim.lease_left,
        "ended_at": claim.ended_at,
    }


def _doubt_json(doubt: "Doubt") -> dict[str, Any]:
    return {
        "since": doubt.since,
        "quiet_until": doubt.quiet_until,
        "quiet": doubt.quiet,
        "next_probe": doubt.due_at,
        "probes": doubt.probes,
        "dead_lettered_at": doubt.reported_at,
    }
